// Package archive reads archives of seamark gather: it fills caches with their objects and has the
// same packages judge them that judge a running clusterset.
package archive

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	aboutv1beta1 "github.com/seamark-dev/seamark/api/about/v1beta1"
	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/cli/explain"
	"github.com/seamark-dev/seamark/internal/cli/status"
	"github.com/seamark-dev/seamark/internal/cli/survey"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/ui/state"
	"github.com/seamark-dev/seamark/internal/ui/watch"
)

// maxArchive bounds what is read of an archive: a small one may unpack to any size.
const maxArchive = 1 << 30

// files are the files of an archive by their name, without the folder that all are in.
type files struct {
	content map[string][]byte
	written time.Time
}

// IsArchive reports whether a file is an archive: compressed, and a tar file inside.
func IsArchive(r *bufio.Reader) bool {
	const enough = 64 << 10
	head, err := r.Peek(enough)
	if err != nil && !errors.Is(err, io.EOF) {
		return false
	}
	zip, err := gzip.NewReader(strings.NewReader(string(head)))
	if err != nil {
		return false
	}
	_, err = tar.NewReader(zip).Next()
	return err == nil
}

func read(r io.Reader) (*files, error) {
	zip, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("it is damaged: %w", err)
	}
	out := &files{content: map[string][]byte{}}
	limited := &io.LimitedReader{R: zip, N: maxArchive}
	unpacked := tar.NewReader(limited)
	for {
		header, err := unpacked.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("it is damaged: %w", err)
		}
		name, ours := strings.CutPrefix(header.Name, "seamark/")
		if !ours {
			return nil, errors.New("it was not written by seamark gather")
		}
		if path.Ext(name) != ".yaml" {
			continue
		}
		if out.content[name], err = io.ReadAll(unpacked); err != nil {
			return nil, fmt.Errorf("it is damaged: %w", err)
		}
		out.written = header.ModTime
	}
}

// add reads a list of objects from a file. A file that does not exist holds none.
func add(f *files, name string, list client.ObjectList, into *[]client.Object) error {
	content, ok := f.content[name]
	if !ok {
		return nil
	}
	if err := yaml.Unmarshal(content, list); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return meta.EachListItem(list, func(obj runtime.Object) error {
		typed, ok := obj.(client.Object)
		if !ok {
			return fmt.Errorf("%s holds %T", name, obj)
		}
		*into = append(*into, typed)
		return nil
	})
}

// source is a kind and the files of a folder that hold its objects.
type source struct {
	object client.Object
	list   func() client.ObjectList
	files  []string
}

func clusterSources() []source {
	own := objects.AgentNamespace
	return []source{
		{&mcsv1beta1.ServiceExport{}, func() client.ObjectList { return &mcsv1beta1.ServiceExportList{} }, []string{"serviceexports"}},
		{&mcsv1beta1.ServiceImport{}, func() client.ObjectList { return &mcsv1beta1.ServiceImportList{} }, []string{"serviceimports"}},
		{&aboutv1beta1.ClusterProperty{}, func() client.ObjectList { return &aboutv1beta1.ClusterPropertyList{} }, []string{"clusterproperties"}},
		{&corev1.Service{}, func() client.ObjectList { return &corev1.ServiceList{} },
			[]string{"exported/services", "derived/services", own + "/services"}},
		{&discoveryv1.EndpointSlice{}, func() client.ObjectList { return &discoveryv1.EndpointSliceList{} },
			[]string{"exported/endpointslices", "endpointslices"}},
		{&corev1.Namespace{}, func() client.ObjectList { return &corev1.NamespaceList{} }, []string{"namespaces"}},
		{&appsv1.Deployment{}, func() client.ObjectList { return &appsv1.DeploymentList{} }, []string{own + "/deployments"}},
		{&appsv1.DaemonSet{}, func() client.ObjectList { return &appsv1.DaemonSetList{} }, []string{own + "/daemonsets"}},
		{&corev1.Pod{}, func() client.ObjectList { return &corev1.PodList{} }, []string{own + "/pods"}},
		{&networkingv1.ServiceCIDR{}, func() client.ObjectList { return &networkingv1.ServiceCIDRList{} }, nil},
	}
}

func brokerSources() []source {
	return []source{
		{&v1alpha1.ClusterSet{}, func() client.ObjectList { return &v1alpha1.ClusterSetList{} }, []string{"clustersets"}},
		{&v1alpha1.Cluster{}, func() client.ObjectList { return &v1alpha1.ClusterList{} }, []string{"clusters"}},
		{&coordinationv1.Lease{}, func() client.ObjectList { return &coordinationv1.LeaseList{} }, []string{"leases"}},
		{&v1alpha1.ExportRecord{}, func() client.ObjectList { return &v1alpha1.ExportRecordList{} }, []string{"exportrecords"}},
		{&discoveryv1.EndpointSlice{}, func() client.ObjectList { return &discoveryv1.EndpointSliceList{} }, []string{"endpointslices"}},
		{&mcsv1beta1.ServiceImport{}, func() client.ObjectList { return &mcsv1beta1.ServiceImportList{} }, []string{"serviceimports"}},
	}
}

// fill returns a cache with the objects of a folder.
func fill(f *files, dir string, sources []source) (*watch.Cache, error) {
	cache := watch.New(nil, brokeradmin.NewScheme(), nil)
	for _, s := range sources {
		var objs []client.Object
		for _, name := range s.files {
			if err := add(f, path.Join(dir, name)+".yaml", s.list(), &objs); err != nil {
				return nil, err
			}
		}
		if err := errors.Join(cache.Hold(s.object), cache.Fill(s.object, objs)); err != nil {
			return nil, err
		}
	}
	return cache, nil
}

// readCluster returns a cluster of the archive.
func readCluster(f *files, id string) (*survey.Cluster, error) {
	dir := path.Join("clusters", id)
	exports := mcsv1beta1.ServiceExportList{}
	var objs []client.Object
	if err := add(f, dir+"/serviceexports.yaml", &exports, &objs); err != nil {
		return nil, err
	}
	if _, complete := f.content[dir+"/exported/services.yaml"]; !complete && len(objs) > 0 {
		return nil, errors.New("it lacks the Services of exports: an earlier version of seamark wrote it, or could not read them. " +
			"It has the reports of status and doctor as text")
	}
	cache, err := fill(f, dir, clusterSources())
	if err != nil {
		return nil, err
	}
	config := &corev1.ConfigMap{}
	if content, ok := f.content[dir+"/configmap-kube-system-coredns.yaml"]; ok {
		if err := yaml.Unmarshal(content, config); err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
	}
	var configs []client.Object
	if config.Name != "" {
		configs = append(configs, config)
	}
	if err := errors.Join(cache.Hold(config), cache.Fill(config, configs)); err != nil {
		return nil, err
	}
	c := &survey.Cluster{
		Context: id, ID: id, Connection: survey.Connection{Client: cache, Config: &rest.Config{Host: "archive/" + id}},
		MembershipProblem: "an archive has no credentials",
	}
	property := types.NamespacedName{Name: aboutv1beta1.PropertyClusterSet}
	set, err := survey.GetIfServed(context.Background(), cache, property, &aboutv1beta1.ClusterProperty{})
	if err != nil {
		return nil, err
	}
	if set != nil {
		c.ClusterSet = set.Spec.Value
	}
	return c, nil
}

func readBroker(f *files) (*survey.Broker, error) {
	if _, read := f.content["broker/clustersets.yaml"]; !read {
		return &survey.Broker{Problem: errors.New("it could not be read when the archive was written")}, nil
	}
	cache, err := fill(f, "broker", brokerSources())
	if err != nil {
		return nil, err
	}
	var sets v1alpha1.ClusterSetList
	if err := cache.List(context.Background(), &sets); err != nil {
		return nil, err
	}
	if len(sets.Items) == 0 {
		return &survey.Broker{Problem: errors.New("it has no ClusterSet")}, nil
	}
	return &survey.Broker{
		Connection: survey.Connection{Client: cache, Config: &rest.Config{Host: "archive"}}, Namespace: sets.Items[0].Namespace,
		ClusterSet: &sets.Items[0],
	}, nil
}

// Open reads an archive, and returns what the page shows of it.
func Open(r io.Reader) (*state.File, error) {
	f, err := read(r)
	if err != nil {
		return nil, err
	}
	ids := map[string]bool{}
	for name := range f.content {
		if rest, ok := strings.CutPrefix(name, "clusters/"); ok {
			id, _, _ := strings.Cut(rest, "/")
			ids[id] = true
		}
	}
	var clusters []*survey.Cluster
	for id := range ids {
		c, err := readCluster(f, id)
		if err != nil {
			return nil, err
		}
		clusters = append(clusters, c)
	}
	slices.SortFunc(clusters, func(a, b *survey.Cluster) int { return strings.Compare(a.ID, b.ID) })
	broker, err := readBroker(f)
	if err != nil {
		return nil, err
	}
	if len(clusters) == 0 && broker.Problem != nil {
		return nil, errors.New("it holds neither a cluster nor a broker")
	}
	return judge(f.written, clusters, broker), nil
}

// judge has the packages of the commands judge what was read.
func judge(at time.Time, clusters []*survey.Cluster, broker *survey.Broker) *state.File {
	ctx := context.Background()
	in := survey.ReadStatusObjects(ctx, clusters, broker, func(int) []objects.Reachability { return nil })
	in.Now, in.BrokerNow = at, at
	report := status.AssessClusters(in)
	facts := &state.ClusterFacts{Read: map[string]time.Time{}, Used: survey.UsedAddresses(in.Records)}
	for _, c := range clusters {
		facts.Read[c.Name()] = at
	}
	s := &state.Snapshot{
		Seq: 1, At: at.UTC(), ClusterSet: report.ClusterSet, Broker: state.Broker{Broker: report.Broker},
		Clusters: state.NewClusters(&report, facts, nil),
		Paths:    state.NewPaths(&report),
	}
	columns := state.NewColumns(s.IDs())
	reader := survey.NewServiceReader(ctx, clusters, broker)
	reader.At = at
	reports := map[string]explain.Report{}
	for _, key := range services(&in) {
		input := reader.Read(ctx, key)
		explained := explain.Explain(input)
		reports[key.String()] = explained
		s.Rows = append(s.Rows, state.NewRow(&input, &explained, columns, nil))
	}
	return &state.File{SavedAt: at, History: state.NewHistory(s), Reports: reports}
}

// services returns the services of what was read, sorted.
func services(in *status.Input) []types.NamespacedName {
	found := map[types.NamespacedName]bool{}
	for i := range in.Records {
		found[types.NamespacedName{Namespace: in.Records[i].Spec.ServiceNamespace, Name: in.Records[i].Spec.ServiceName}] = true
	}
	for _, c := range in.Clusters {
		for i := range c.Exports {
			found[client.ObjectKeyFromObject(&c.Exports[i])] = true
		}
		for i := range c.Imports {
			found[client.ObjectKeyFromObject(&c.Imports[i])] = true
		}
	}
	out := make([]types.NamespacedName, 0, len(found))
	for key := range found {
		out = append(out, key)
	}
	slices.SortFunc(out, func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	return out
}
