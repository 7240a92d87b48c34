package chart

import (
	"context"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/install/chart"
	"github.com/seamark-dev/seamark/internal/objects"
)

// checkBeaconKey checks that a key which the agent has written changes the pods of the beacons, so
// that kubelets read it at once, and no other pods. Nothing is written when it is the same key.
func checkBeaconKey(t *testing.T, b *fixture) {
	c := b.client("east")
	var created string // version of the pod that is no beacon, which is created last
	for _, name := range []string{objects.BeaconService, "seamark-dns"} {
		pod := podOf(name, get(b, "east", chart.Namespace, name, &appsv1.Deployment{}).Spec.Template)
		if err := c.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Delete(context.Background(), pod, client.GracePeriodSeconds(0)); err != nil {
				t.Error(err)
			}
		})
		created = pod.ResourceVersion
	}
	annotated := func(name string) (version, annotation string) {
		pod := get(b, "east", chart.Namespace, name+"-trial", &corev1.Pod{})
		return pod.ResourceVersion, pod.Annotations[chart.AnnotationBeaconKey]
	}

	secret := get(b, "east", chart.Namespace, objects.BeaconSecret, &corev1.Secret{})
	if len(secret.Data) > 0 {
		t.Fatalf("the chart writes %d keys", len(secret.Data))
	}
	var told []string
	writeKey := func(line string) { // as the agent does, while join waits for it
		told = append(told, line)
		secret.Data = map[string][]byte{"key": []byte("as the agent does")}
		if err := c.Update(t.Context(), secret); err != nil {
			t.Error(err)
		}
	}
	var delivered string
	for range 2 {
		if err := chart.DeliverBeaconKey(t.Context(), c, writeKey); err != nil {
			t.Fatal(err)
		}
		if want := "the agent has not written the key of the beacons yet (15s at most)"; !slices.Equal(told, []string{want}) {
			t.Errorf("while the key is waited for, join says %q", told)
		}
		version, annotation := annotated(objects.BeaconService)
		if annotation != secret.ResourceVersion {
			t.Errorf("the beacon's pod has %q, and the Secret is version %s", annotation, secret.ResourceVersion)
		}
		if delivered != "" && version != delivered {
			t.Error("the same key was delivered twice")
		}
		delivered = version
	}
	if version, annotation := annotated("seamark-dns"); annotation != "" || version != created {
		t.Errorf("another pod was changed: %q", annotation)
	}

	secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: chart.Namespace, Name: objects.BeaconSecret}}
	if err := c.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if err := chart.DeliverBeaconKey(t.Context(), c, writeKey); err != nil {
		t.Errorf("without beacons: %v", err)
	}
	b.join("east", "east", "--set beacon.replicas=3") // helm restores the Secret
	get(b, "east", chart.Namespace, objects.BeaconSecret, &corev1.Secret{})
}
