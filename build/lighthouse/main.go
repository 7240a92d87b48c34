// Command lighthouse prints CRDs of Submariner as its operator of this release and `subctl` write
// them, for the tests of migrations. The operator writes all but the last at each of its starts.
package main

import (
	"fmt"
	"os"

	"github.com/submariner-io/submariner-operator/deploy/crds"
	mcscrd "sigs.k8s.io/mcs-api/config/crd"
)

func main() {
	for _, text := range [][]byte{mcscrd.ServiceImportCRD, mcscrd.ServiceExportCRD, crds.ServiceDiscoveryCRD, crds.SubmarinerCRD} {
		if _, err := fmt.Printf("---\n%s\n", text); err != nil {
			fmt.Fprintln(os.Stderr, "lighthouse:", err)
			os.Exit(1)
		}
	}
}
