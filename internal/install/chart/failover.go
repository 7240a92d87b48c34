package chart

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
)

// failoverFlag makes the proxy run beside the data plane of the cluster. It then removes its rules
// when it ends.
const failoverFlag = "--failover-only"

// ciliumConfig is the configuration of Cilium's agents.
var ciliumConfig = types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: "cilium-config"}

// kubeProxyReplacement is the key that says whether Cilium does the work of kube-proxy.
const kubeProxyReplacement = "kube-proxy-replacement"

// WithoutFailover is the reason why join installs a release without the proxy for failovers. It is
// empty if the proxy is installed, or if the user decided.
type WithoutFailover string

// Reasons to install a release without the proxy for failovers.
const (
	// CiliumTranslates means that Cilium replaces kube-proxy: the proxy would never see a packet.
	CiliumTranslates WithoutFailover = "CiliumTranslates"
	// NamespaceRefuses means that the namespace of the user does not admit the proxy's pods.
	NamespaceRefuses WithoutFailover = "NamespaceRefuses"
)

// failoverInput is what decides whether join installs the proxy for failovers.
type failoverInput struct {
	// chosen reports whether a flag of join, or a value of the release, sets proxy.failover.
	chosen    bool
	dataPlane v1alpha1.DataPlane
	// standard is the pod security standard that the namespace enforces; managed reports whether
	// Seamark created the namespace, and may change the standard.
	standard string
	managed  bool
	// replacement is Cilium's setting kube-proxy-replacement, empty without Cilium.
	replacement string
}

// decideFailover returns why the proxy for failovers is not to be installed. Cilium comes first:
// there another pod security standard would not help.
func decideFailover(in failoverInput) WithoutFailover {
	switch {
	case in.chosen || !objects.DataPlaneOf(in.dataPlane).DerivesService:
		return ""
	case in.replacement == "true" || in.replacement == "strict":
		return CiliumTranslates
	case !in.managed && in.standard != "" && in.standard != privileged:
		return NamespaceRefuses
	}
	return ""
}

// AdaptFailover returns the values, with proxy.failover turned off if the proxy cannot run or would
// have no effect in this cluster. planned are the values that Install would use. note says what was
// turned off, why, and what to do; it is empty if nothing was. What the user chose stays.
func AdaptFailover(ctx context.Context, c client.Client, values, planned map[string]any) (adapted map[string]any, note string, err error) {
	in, err := readFailoverInput(ctx, c, planned)
	if err != nil {
		return nil, "", err
	}
	why := decideFailover(in)
	if why == "" {
		return values, "", nil
	}
	off := map[string]any{"proxy": map[string]any{"failover": false}}
	return loader.MergeMaps(values, off), why.note(in.standard), nil
}

// readFailoverInput reads what decideFailover needs. Where that is decided already, it reads
// nothing from the cluster.
func readFailoverInput(ctx context.Context, c client.Client, planned map[string]any) (failoverInput, error) {
	in := failoverInput{chosen: choosesFailover(planned), dataPlane: planeOf(planned)}
	if in.chosen || !objects.DataPlaneOf(in.dataPlane).DerivesService {
		return in, nil
	}
	namespace := &corev1.Namespace{}
	if err := c.Get(ctx, types.NamespacedName{Name: Namespace}, namespace); client.IgnoreNotFound(err) != nil {
		return in, fmt.Errorf("read namespace %s: %w", Namespace, err)
	}
	in.standard, in.managed = namespace.Labels[labelEnforce], namespace.Labels[objects.LabelManagedBy] == objects.ManagedBySeamark
	config := &corev1.ConfigMap{}
	// Cilium is usually absent, and not every user who joins may read its configuration.
	if err := c.Get(ctx, ciliumConfig, config); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return in, fmt.Errorf("read ConfigMap %s: %w", ciliumConfig, err)
	}
	in.replacement = config.Data[kubeProxyReplacement]
	return in, nil
}

// planeOf returns the data plane, empty if the values leave it to the chart.
func planeOf(values map[string]any) v1alpha1.DataPlane {
	plane, _ := values["dataPlane"].(string)
	return v1alpha1.DataPlane(plane)
}

// choosesFailover reports whether values set proxy.failover, instead of leaving it to the chart.
func choosesFailover(values map[string]any) bool {
	proxy, _ := values["proxy"].(map[string]any)
	_, chosen := proxy["failover"]
	return chosen
}

// note returns what join tells the user. standard is the pod security standard of the namespace.
func (why WithoutFailover) note(standard string) string {
	switch why {
	case CiliumTranslates:
		return "proxy.failover is set to false: Cilium replaces kube-proxy, so seamark-proxy would see no packets and failovers take " +
			"as long as Cilium needs to follow the EndpointSlices; to run it all the same, join with --set proxy.failover=true"
	case NamespaceRefuses:
		return fmt.Sprintf("proxy.failover is set to false: namespace %s enforces the pod security standard %s, which does not admit "+
			"seamark-proxy, and with kube-proxy alone failovers take some seconds longer; to run it: "+
			"kubectl label namespace %s --overwrite %s=%s, then join with --set proxy.failover=true",
			Namespace, standard, Namespace, labelEnforce, privileged)
	}
	return ""
}

// adviseOnRefusal adds to the error of an installation how to do without the proxy, if admission
// refused its DaemonSet, the user did not choose it, and the data plane works without it. values
// are those of the user.
func adviseOnRefusal(err error, values map[string]any) error {
	if choosesFailover(values) || !objects.DataPlaneOf(planeOf(values)).DerivesService || !refusesProxy(err) {
		return err
	}
	return fmt.Errorf("%w; if this cluster does not admit seamark-proxy, join with --set proxy.failover=false "+
		"(failovers then take some seconds longer)", err)
}

// refusesProxy reports whether an API server refused the DaemonSet of the proxy. Errors of webhooks
// do not name the object, but Helm does.
func refusesProxy(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
		return false
	}
	text := err.Error()
	return strings.Contains(text, fmt.Sprintf("daemonsets.apps %q", proxyDaemonSet)) ||
		strings.Contains(text, Namespace+"/"+proxyDaemonSet+" apps/v1, Kind=DaemonSet")
}
