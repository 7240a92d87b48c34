package brokeradmin

import (
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/util/validation"
)

// maxIDLength is the longest label value: a cluster id is also used as one.
const maxIDLength = 63

var clusterIDForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`)

// CheckClusterID returns an error that says what is allowed if id cannot be a cluster id.
func CheckClusterID(id string) error {
	const allowed = "a cluster id is a name of lower-case letters, digits and '-' that begins and ends with a letter or digit, " +
		"or two such names joined by a dot; at most 63 characters"
	switch {
	case id == "":
		return fmt.Errorf("the cluster id is empty: %s", allowed)
	case len(id) > maxIDLength:
		return fmt.Errorf("cluster id %q has %d characters: %s", id, len(id), allowed)
	case !clusterIDForm.MatchString(id):
		return fmt.Errorf("%q cannot be a cluster id: %s", id, allowed)
	}
	return nil
}

// CheckClusterSetName returns an error that says what is allowed if name cannot be the name of a
// clusterset.
func CheckClusterSetName(name string) error {
	if len(validation.IsDNS1123Label(name)) > 0 {
		return fmt.Errorf("%q cannot be the name of a clusterset: use at most 63 lower-case letters, digits and '-', "+
			"with a letter or digit at both ends", name)
	}
	return nil
}

// CheckNamespaces returns an error if one of the names cannot be the name of a namespace.
func CheckNamespaces(names []string) error {
	for _, name := range names {
		if len(validation.IsDNS1123Label(name)) > 0 {
			return fmt.Errorf("%q cannot be a namespace: name the namespaces one by one, without wildcards", name)
		}
	}
	return nil
}

// ChooseID returns the id a cluster joins with: the one the user gives, else the one it already
// has, else the one it is invited as, else the uid of its kube-system namespace. With an invitation
// (invited is not empty) it fails for any id but the invitation's.
func ChooseID(explicit, existing, invited, kubeSystemUID string) (string, error) {
	id := kubeSystemUID
	for _, candidate := range []string{explicit, existing, invited} {
		if candidate != "" {
			id = candidate
			break
		}
	}
	if err := CheckClusterID(id); err != nil {
		return "", err
	}
	if invited == "" || id == invited {
		return id, nil
	}
	if id == explicit {
		return "", fmt.Errorf("the invitation is for cluster %s, not %s: leave out --clusterid, or get an invitation for %s "+
			"(seamark broker invite %s)", invited, id, id, id)
	}
	return "", fmt.Errorf("the invitation is for cluster %s, but the id of this cluster is %s (ClusterProperty "+
		"cluster.clusterset.k8s.io): get an invitation for %s, or say --clusterid %s to give this cluster the new id",
		invited, id, id, invited)
}
