package corefile

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ConfigMap is the configuration of CoreDNS in clusters that use it, such as those of kubeadm, kind
// and EKS. Key is its Corefile.
var ConfigMap = types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: "coredns"}

// Key of the Corefile in ConfigMap.
const Key = "Corefile"

// labelAddonMode marks objects that an addon manager, such as AKS's, restores after a change.
const labelAddonMode = "addonmanager.kubernetes.io/mode"

// NoCorefile is why a cluster without ConfigMap is left as it is.
const NoCorefile = "there is no ConfigMap kube-system/coredns with a Corefile"

// Fixed returns why the Corefile of a ConfigMap cannot be changed, empty if it can.
func Fixed(config *corev1.ConfigMap) string {
	if _, ok := config.Data[Key]; !ok {
		return NoCorefile
	}
	if config.Labels[labelAddonMode] == "Reconcile" {
		return fmt.Sprintf("ConfigMap %s is managed by the cluster's provider, which would undo the change (label %s)", ConfigMap, labelAddonMode)
	}
	return ""
}

// AddTo returns the Corefile of a ConfigMap with the block, or why the ConfigMap must be left as it
// is.
func AddTo(config *corev1.ConfigMap, f Forward) (text, left string) {
	if left := Fixed(config); left != "" {
		return "", left
	}
	return edit(config, func(text string) (string, error) { return Add(text, f) })
}

// RemoveFrom returns the Corefile of a ConfigMap without the block, or why the ConfigMap must be
// left as it is.
func RemoveFrom(config *corev1.ConfigMap) (text, left string) { return edit(config, Remove) }

func edit(config *corev1.ConfigMap, change func(string) (string, error)) (text, left string) {
	old, ok := config.Data[Key]
	if !ok {
		return "", NoCorefile
	}
	text, err := change(old)
	if err != nil { // text of another author is in the way, which only the user may change
		return "", fmt.Sprintf("ConfigMap %s: %v", ConfigMap, err)
	}
	return text, ""
}
