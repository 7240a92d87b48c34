package chart

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/objects"
)

// AnnotationBeaconKey is on pods of seamark-beacon: the version of the Secret with which
// DeliverBeaconKey last changed them.
const AnnotationBeaconKey = "seamark.dev/beacon-key-version"

// keyTimeout is how long DeliverBeaconKey waits for the key. A ready agent writes it within a
// second or two.
const keyTimeout = 15 * time.Second

// DeliverBeaconKey makes kubelets read the key that the agent has written for the beacons. A
// kubelet reads the Secrets of a pod again when the pod changes, otherwise only every minute or so.
// Until then no other cluster can probe this one. progress is called if the key has to be waited
// for. DeliverBeaconKey fails if the agent writes no key in time: kubelets find it later. Without
// beacons it does nothing.
func DeliverBeaconKey(ctx context.Context, c client.Client, progress func(string)) error {
	version, err := awaitBeaconKey(ctx, c, progress)
	if err != nil || version == "" {
		return err
	}
	pods := &corev1.PodList{}
	beacons := client.MatchingLabels{"app.kubernetes.io/instance": ReleaseName, "app.kubernetes.io/component": "beacon"}
	if err := c.List(ctx, pods, client.InNamespace(Namespace), beacons); err != nil {
		return fmt.Errorf("list pods of %s: %w", objects.BeaconService, err)
	}
	var errs []error
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Annotations[AnnotationBeaconKey] == version {
			continue
		}
		patch := client.MergeFrom(pod.DeepCopy())
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations[AnnotationBeaconKey] = version
		if err := c.Patch(ctx, pod, patch); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("annotate pod %s: %w", client.ObjectKeyFromObject(pod), err))
		}
	}
	return errors.Join(errs...)
}

// awaitBeaconKey returns the version of the Secret that holds the key; "" if there is no Secret.
func awaitBeaconKey(ctx context.Context, c client.Client, progress func(string)) (version string, err error) {
	secret, waited := &corev1.Secret{}, false
	err = wait.PollUntilContextTimeout(ctx, waitPoll, keyTimeout, true, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: objects.BeaconSecret}, secret)
		done := len(secret.Data) > 0 || apierrors.IsNotFound(err)
		if err == nil && !done && !waited {
			waited = true
			progress(fmt.Sprintf("the agent has not written the key of the beacons yet (%s at most)", keyTimeout))
		}
		return done, client.IgnoreNotFound(err)
	})
	switch {
	case wait.Interrupted(err) && ctx.Err() == nil:
		return "", fmt.Errorf("the agent has written no key into Secret %s within %s", objects.BeaconSecret, keyTimeout)
	case err != nil:
		return "", fmt.Errorf("read Secret %s: %w", objects.BeaconSecret, err)
	case len(secret.Data) == 0:
		return "", nil
	}
	return secret.ResourceVersion, nil
}
