package objects

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ResourceVersion returns the resource version of an object as a number. An API server increases
// it with every write, so two versions of the same kind from the same server can be compared
// (KEP-5504). It returns 0 where the version is missing or not a number; callers then do without
// the comparison.
func ResourceVersion(obj metav1.Object) int64 {
	version, err := strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return version
}

// OlderVersion reports whether a was written before b. It is false where a version is missing or
// not a number.
func OlderVersion(a, b metav1.Object) bool {
	versionA, versionB := ResourceVersion(a), ResourceVersion(b)
	return versionA > 0 && versionB > 0 && versionA < versionB
}
