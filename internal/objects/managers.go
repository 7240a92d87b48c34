package objects

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ForgetManagers makes the next update of an object clear the list of who wrote which of its
// fields. The API server then keeps none for later updates either. That list is half of a Cluster,
// of which each member reads all, and an eighth of the work of renewing a lease.
func ForgetManagers(obj metav1.Object) {
	if len(obj.GetManagedFields()) > 0 {
		obj.SetManagedFields([]metav1.ManagedFieldsEntry{{}})
	}
}
