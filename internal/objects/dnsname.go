package objects

import "k8s.io/apimachinery/pkg/types"

// DNSService is the name of the Deployment, the Service and the ConfigMap of seamark-dns.
const DNSService = "seamark-dns"

// DNSName returns the name of a service of the clusterset in a zone, without a dot at its end.
func DNSName(service types.NamespacedName, zone string) string {
	return service.Name + "." + service.Namespace + ".svc." + zone
}
