package agent

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/internal/objects/reachable"
)

// importSources knows from which clusters, in which families, this one imports which services.
type importSources struct {
	own string

	mu        sync.Mutex
	bySource  map[reachable.Key]map[types.NamespacedName]bool
	byService map[types.NamespacedName][]reachable.Key
}

func newImportSources(own string) *importSources {
	return &importSources{
		own: own, bySource: map[reachable.Key]map[types.NamespacedName]bool{}, byService: map[types.NamespacedName][]reachable.Key{},
	}
}

// observe costs nothing for an event that does not change the clusters of an import: there are many
// of those.
func (s *importSources) observe(si *mcsv1beta1.ServiceImport, deleted bool) {
	if !objects.IsManagedImport(si) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	service := client.ObjectKeyFromObject(si)
	var sources []reachable.Key
	if !deleted {
		sources = s.of(si)
	}
	before := s.byService[service]
	if slices.Equal(before, sources) {
		return
	}
	for _, source := range before {
		if services := s.bySource[source]; !slices.Contains(sources, source) {
			if delete(services, service); len(services) == 0 {
				delete(s.bySource, source)
			}
		}
	}
	for _, source := range sources {
		if s.bySource[source] == nil {
			s.bySource[source] = map[types.NamespacedName]bool{}
		}
		s.bySource[source][service] = true
	}
	if s.byService[service] = sources; len(sources) == 0 {
		delete(s.byService, service)
	}
}

// of returns the other clusters that serve an import, in each of its families.
func (s *importSources) of(si *mcsv1beta1.ServiceImport) (sources []reachable.Key) {
	families := si.Spec.IPFamilies
	if len(families) == 0 {
		families = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	}
	for _, c := range si.Status.Clusters {
		for _, family := range families {
			if c.Cluster != s.own {
				sources = append(sources, reachable.Key{Cluster: c.Cluster, Family: family})
			}
		}
	}
	return sources
}

// has reports whether endpoints are imported from a cluster in a family.
func (s *importSources) has(source reachable.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.bySource[source]) > 0
}

// clusters returns the clusters from which this one imports, sorted.
func (s *importSources) clusters() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for source := range s.bySource {
		out = append(out, source.Cluster)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// servicesOf returns some services of a cluster in a family.
func (s *importSources) servicesOf(source reachable.Key, limit int) []types.NamespacedName {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []types.NamespacedName
	for service := range s.bySource[source] { // in random order
		if len(out) == limit {
			break
		}
		out = append(out, service)
	}
	return out
}

// importedFrom returns all services that are imported from any of the clusters, sorted.
func (s *importSources) importedFrom(clusters []string) []types.NamespacedName {
	s.mu.Lock()
	defer s.mu.Unlock()
	services := map[types.NamespacedName]bool{}
	for source, imported := range s.bySource {
		if slices.Contains(clusters, source.Cluster) {
			maps.Copy(services, imported)
		}
	}
	return slices.SortedFunc(maps.Keys(services), func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}
