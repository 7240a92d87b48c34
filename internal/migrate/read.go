package migrate

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/install/crds"
	"github.com/seamark-dev/seamark/internal/objects"
)

var (
	submarinerKind = schema.GroupVersionKind{Group: "submariner.io", Version: "v1alpha1", Kind: "Submariner"}
	discoveryKind  = schema.GroupVersionKind{Group: "submariner.io", Version: "v1alpha1", Kind: "ServiceDiscovery"}
	clusterKind    = schema.GroupVersionKind{Group: "submariner.io", Version: "v1", Kind: "Cluster"}
	// Lighthouse's CRDs serve only v1alpha1, and Seamark's serve it too.
	importKind = schema.GroupVersionKind{Group: mcsv1beta1.GroupName, Version: crds.OldestStored, Kind: "ServiceImport"}
	exportKind = schema.GroupVersionKind{Group: mcsv1beta1.GroupName, Version: crds.OldestStored, Kind: "ServiceExport"}
)

// Read gathers the facts of a cluster. The client must read from the API server, not from a cache.
func Read(ctx context.Context, c client.Client) (f Facts, err error) {
	for _, read := range []func(context.Context, client.Client, *Facts) error{
		readPhase, readSubmariner, readMember, readKinds, readServices, readExports, readDNS, readGuard,
	} {
		if err := read(ctx, c, &f); err != nil {
			return f, err
		}
	}
	return f, nil
}

// ReadPhase returns how far a cluster has moved, and its id in Submariner.
func ReadPhase(ctx context.Context, c client.Client) (id string, phase v1alpha1.MigrationPhase, err error) {
	var f Facts
	if err := readPhase(ctx, c, &f); err != nil {
		return "", "", err
	}
	if err := readSubmariner(ctx, c, &f); err != nil || f.Submariner == nil {
		return "", f.Phase, err
	}
	return f.Submariner.ClusterID, f.Phase, nil
}

func readPhase(ctx context.Context, c client.Client, f *Facts) error {
	p := &aboutv1beta1.ClusterProperty{}
	if err := c.Get(ctx, types.NamespacedName{Name: v1alpha1.PropertyMigration}, p); err != nil && !absent(err) {
		return fmt.Errorf("read ClusterProperty %s: %w", v1alpha1.PropertyMigration, err)
	}
	f.Phase = v1alpha1.MigrationPhase(p.Spec.Value)
	f.PreviousDNS = configMapRef(p.Annotations[annotationPreviousDNS])
	return nil
}

// absent reports whether an object, or its kind, does not exist.
func absent(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }

func readSubmariner(ctx context.Context, c client.Client, f *Facts) error {
	list, err := listKind(ctx, c, submarinerKind)
	if err != nil || len(list) == 0 {
		return err
	}
	cr := list[0]
	text := func(fields ...string) string { v, _, _ := unstructured.NestedString(cr.Object, fields...); return v }
	flag := func(field string) bool { v, _, _ := unstructured.NestedBool(cr.Object, "spec", field); return v }
	s := &Submariner{
		Namespace: cr.GetNamespace(), Version: text("spec", "version"), ClusterID: text("spec", "clusterID"),
		GlobalCIDR: text("spec", "globalCIDR"), ClusterSetIPs: flag("clustersetIPEnabled"), DiscoveryEnabled: flag("serviceDiscoveryEnabled"),
		CustomDNS: customDNS(&cr), ManagedBy: managerOf(&cr),
	}
	s.CustomDomains, _, _ = unstructured.NestedStringSlice(cr.Object, "spec", "customDomains")
	sd := &unstructured.Unstructured{}
	sd.SetGroupVersionKind(discoveryKind)
	err = c.Get(ctx, types.NamespacedName{Namespace: s.Namespace, Name: discoveryName}, sd)
	if err != nil && !absent(err) {
		return fmt.Errorf("read ServiceDiscovery %s/%s: %w", s.Namespace, discoveryName, err)
	}
	s.DiscoveryExists = err == nil
	unused := &corev1.ConfigMap{}
	err = c.Get(ctx, types.NamespacedName{Namespace: s.Namespace, Name: UnusedDNSConfigMap}, unused)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read ConfigMap %s/%s: %w", s.Namespace, UnusedDNSConfigMap, err)
	}
	_, s.Redirected = unused.Data[customDNSKey]
	if err = readClusters(ctx, c, s); err != nil {
		return err
	}
	_, s.OperatorRunning, err = readDeployment(ctx, c, types.NamespacedName{Namespace: s.Namespace, Name: OperatorDeployment})
	if err != nil {
		return err
	}
	s.AgentExists, s.AgentRunning, err = readDeployment(ctx, c, types.NamespacedName{Namespace: s.Namespace, Name: AgentDeployment})
	if err != nil {
		return err
	}
	if _, s.DNSRunning, err = readDeployment(ctx, c, types.NamespacedName{Namespace: s.Namespace, Name: lighthouseDNS}); err != nil {
		return err
	}
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods, client.InNamespace(s.Namespace), client.MatchingLabels{"app": AgentDeployment}); err != nil {
		return fmt.Errorf("list the pods of Lighthouse's agent: %w", err)
	}
	s.AgentExists = s.AgentExists || len(pods.Items) > 0
	f.Submariner = s
	return nil
}

func listKind(ctx context.Context, c client.Client, kind schema.GroupVersionKind) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := c.List(ctx, list); err != nil {
		if absent(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("list objects of kind %s: %w", kind.Kind, err)
	}
	return list.Items, nil
}

func customDNS(obj *unstructured.Unstructured) ConfigMapRef {
	name, _, _ := unstructured.NestedString(obj.Object, "spec", "coreDNSCustomConfig", "configMapName")
	namespace, _, _ := unstructured.NestedString(obj.Object, "spec", "coreDNSCustomConfig", "namespace")
	return ConfigMapRef{namespace, name}
}

// managers are the labels and annotations by which tools mark what they restore.
var managers = []struct{ key, tool string }{
	{"argocd.argoproj.io/tracking-id", "Argo CD"}, {"argocd.argoproj.io/instance", "Argo CD"},
	{"kustomize.toolkit.fluxcd.io/name", "Flux"}, {"helm.toolkit.fluxcd.io/name", "Flux"},
	{"meta.helm.sh/release-name", "Helm"}, {"addon.open-cluster-management.io/addon-name", "Open Cluster Management"},
	{"work.open-cluster-management.io/manifestwork-name", "Open Cluster Management"},
}

func managerOf(obj *unstructured.Unstructured) string {
	for _, m := range managers {
		_, label := obj.GetLabels()[m.key]
		_, annotation := obj.GetAnnotations()[m.key]
		if label || annotation {
			return m.tool
		}
	}
	for _, owner := range obj.GetOwnerReferences() {
		return owner.Kind + " " + owner.Name
	}
	return ""
}

// readClusters reads the clusters that Submariner connects, and their ranges. Its agents copy
// them to all clusters.
func readClusters(ctx context.Context, c client.Client, s *Submariner) error {
	list, err := listKind(ctx, c, clusterKind)
	s.Ranges = map[string][]netip.Prefix{}
	for i := range list {
		id, _, _ := unstructured.NestedString(list[i].Object, "spec", "cluster_id")
		if id == "" {
			continue
		}
		s.Clusters = append(s.Clusters, id)
		s.Ranges[id] = nil
		for _, field := range []string{"cluster_cidr", "service_cidr"} {
			texts, _, _ := unstructured.NestedStringSlice(list[i].Object, "spec", field)
			for _, text := range texts {
				if r, err := netip.ParsePrefix(text); err == nil {
					s.Ranges[id] = append(s.Ranges[id], r.Masked())
				}
			}
		}
	}
	slices.Sort(s.Clusters)
	s.Clusters = slices.Compact(s.Clusters) // the broker's cluster has them twice
	return err
}

func readDeployment(ctx context.Context, c client.Client, key types.NamespacedName) (exists, running bool, err error) {
	d := &appsv1.Deployment{}
	if err := c.Get(ctx, key, d); err != nil {
		if apierrors.IsNotFound(err) {
			return false, false, nil
		}
		return false, false, fmt.Errorf("read Deployment %s: %w", key, err)
	}
	return true, d.Status.AvailableReplicas > 0, nil
}

func readMember(ctx context.Context, c client.Client, f *Facts) error {
	local, err := brokeradmin.ReadLocal(ctx, c)
	if err != nil {
		return err
	}
	f.ClusterID = local.ClusterID
	if local.Membership == nil {
		return nil
	}
	f.Member = &Member{ClusterID: local.Membership.ClusterID, ClusterSet: local.Membership.ClusterSet}
	for name, running := range map[string]*bool{"seamark-agent": &f.Member.AgentRunning, "seamark-dns": &f.Member.DNSRunning} {
		if _, *running, err = readDeployment(ctx, c, types.NamespacedName{Namespace: objects.AgentNamespace, Name: name}); err != nil {
			return err
		}
	}
	return nil
}

func readKinds(ctx context.Context, c client.Client, f *Facts) error {
	definitions, err := crds.Definitions(crds.Member)
	if err != nil {
		return err
	}
	for _, d := range definitions {
		existing := &apiextensionsv1.CustomResourceDefinition{}
		err := c.Get(ctx, types.NamespacedName{Name: d.CRD.Name}, existing)
		switch {
		case apierrors.IsNotFound(err):
			existing = nil
		case err != nil:
			return fmt.Errorf("read CRD %s: %w", d.CRD.Name, err)
		}
		f.Kinds = append(f.Kinds, kindFrom(existing, d.BesideSubmariner()))
	}
	return nil
}

// kindFrom returns what a CRD, nil if there is none, means for the move.
func kindFrom(existing *apiextensionsv1.CustomResourceDefinition, want crds.Definition) Kind {
	decision := crds.Decide(existing, want)
	kind := Kind{Name: want.CRD.Name, Ready: decision.Action == crds.Keep}
	if decision.Action == crds.Refuse {
		kind.Refused = decision.Reason
	}
	if existing != nil && want.StoresOldest() {
		kind.Stored = existing.Status.StoredVersions
		if storage := crds.StorageVersion(existing); kind.Ready && storage != crds.OldestStored {
			kind.Refused = decision.Reason + ", and stores objects as " + storage
		}
	}
	return kind
}

func readServices(ctx context.Context, c client.Client, f *Facts) error {
	imports, err := listKind(ctx, c, importKind)
	if err != nil {
		return err
	}
	services := map[types.NamespacedName]*Service{}
	of := func(key types.NamespacedName) *Service {
		if services[key] == nil {
			services[key] = &Service{NamespacedName: key, Lighthouse: map[string][]string{}, Seamark: map[string][]string{}}
		}
		return services[key]
	}
	for i := range imports {
		si := &mcsv1beta1.ServiceImport{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(imports[i].Object, si); err != nil {
			return fmt.Errorf("read ServiceImport %s/%s: %w", imports[i].GetNamespace(), imports[i].GetName(), err)
		}
		addImport(f, of, si)
	}
	slicesOfServices := &discoveryv1.EndpointSliceList{}
	err = c.List(ctx, slicesOfServices, client.HasLabels{mcsv1beta1.LabelServiceName, mcsv1beta1.LabelSourceCluster})
	if err != nil {
		return fmt.Errorf("list the imported EndpointSlices: %w", err)
	}
	for i := range slicesOfServices.Items {
		addSlice(of, &slicesOfServices.Items[i])
	}
	for _, s := range services {
		f.Services = append(f.Services, *s)
	}
	slices.SortFunc(f.Services, func(a, b Service) int {
		return compareNames(a.NamespacedName, b.NamespacedName)
	})
	return nil
}

// addImport adds what a ServiceImport says. Those that agents of Lighthouse exchange are no
// services of this cluster.
func addImport(f *Facts, of func(types.NamespacedName) *Service, si *mcsv1beta1.ServiceImport) {
	key := client.ObjectKeyFromObject(si)
	_, oldCluster := si.Labels[labelOldSourceCluster]
	_, oldName := si.Labels[labelOldSourceName]
	_, oldOrigin := si.Annotations[annotationOldOrigin]
	_, label := si.Labels[mcsv1beta1.LabelServiceName]
	_, annotation := si.Annotations[mcsv1beta1.LabelServiceName]
	switch {
	case oldCluster || oldName || oldOrigin:
		f.OldImports = append(f.OldImports, key)
	case label || annotation:
		if f.Submariner != nil && si.Namespace == f.Submariner.Namespace {
			f.Contributions++
		}
	default:
		s := of(key)
		s.Imported, s.Managed = true, objects.IsManagedImport(si)
		s.IPs, s.Headless = si.Spec.IPs, si.Spec.Type == mcsv1beta1.Headless
	}
}

func addSlice(of func(types.NamespacedName) *Service, s *discoveryv1.EndpointSlice) {
	cluster, name := s.Labels[mcsv1beta1.LabelSourceCluster], s.Labels[mcsv1beta1.LabelServiceName]
	key := types.NamespacedName{Namespace: s.Namespace, Name: name}
	var side map[string][]string
	if _, imported := objects.ImportedService(s); imported {
		side = of(key).Seamark
	} else if s.Labels[discoveryv1.LabelManagedBy] == v1alpha1.ManagedByLighthouse && s.Labels[labelSourceNamespace] == s.Namespace {
		side = of(key).Lighthouse // one in another namespace is a broker's
	} else {
		return
	}
	side[cluster] = append(side[cluster], readyAddresses(s)...)
}

func readyAddresses(s *discoveryv1.EndpointSlice) []string {
	var out []string
	for _, e := range s.Endpoints {
		if ptr.Deref(e.Conditions.Ready, true) {
			out = append(out, e.Addresses...)
		}
	}
	return out
}

func compareNames(a, b types.NamespacedName) int {
	return slices.Compare([]string{a.Namespace, a.Name}, []string{b.Namespace, b.Name})
}

func readExports(ctx context.Context, c client.Client, f *Facts) error {
	exports, err := listKind(ctx, c, exportKind)
	if err != nil {
		return err
	}
	for i := range exports {
		se := &mcsv1beta1.ServiceExport{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(exports[i].Object, se); err != nil {
			return fmt.Errorf("read ServiceExport %s/%s: %w", exports[i].GetNamespace(), exports[i].GetName(), err)
		}
		e := Export{NamespacedName: client.ObjectKeyFromObject(se)}
		conflict := meta.FindStatusCondition(se.Status.Conditions, string(mcsv1beta1.ServiceExportConditionConflict))
		if conflict != nil && conflict.Status == metav1.ConditionTrue {
			e.Conflict = conflict.Message
		}
		svc := &corev1.Service{}
		if err := c.Get(ctx, e.NamespacedName, svc); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read Service %s: %w", e.NamespacedName, err)
		}
		e.ServiceType = svc.Spec.Type
		f.Exports = append(f.Exports, e)
	}
	return nil
}
