package migrate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Missing returns what Lighthouse has of the services here and Seamark has not, in a fixed order:
// before it is empty, a switch or a finish would take endpoints from clients.
//
// What only Seamark has is no difference: services of clusters that never ran Lighthouse.
func Missing(services []Service) []string {
	return differences(services, "Seamark", func(s Service) (have, lacks map[string][]string) { return s.Lighthouse, s.Seamark })
}

// MissingInLighthouse returns what Seamark has and Lighthouse has not: a way back would lose it.
func MissingInLighthouse(services []Service) []string {
	return differences(services, "Lighthouse", func(s Service) (have, lacks map[string][]string) { return s.Seamark, s.Lighthouse })
}

// ofCluster returns the services with the endpoints of one cluster only.
func ofCluster(services []Service, cluster string) []Service {
	only := func(all map[string][]string) map[string][]string {
		if addresses, ok := all[cluster]; ok {
			return map[string][]string{cluster: addresses}
		}
		return nil
	}
	out := slices.Clone(services)
	for i := range out {
		out[i].Lighthouse, out[i].Seamark = only(out[i].Lighthouse), only(out[i].Seamark)
	}
	return out
}

func differences(services []Service, whose string, sides func(Service) (have, lacks map[string][]string)) []string {
	var out []string
	for _, s := range services {
		have, lacks := sides(s)
		for _, cluster := range slices.Sorted(maps.Keys(have)) {
			others, known := lacks[cluster] // without ready addresses there is nothing to lose
			missing := slices.DeleteFunc(slices.Clone(have[cluster]), func(a string) bool { return slices.Contains(others, a) })
			switch {
			case len(missing) > 0 && !known:
				out = append(out, fmt.Sprintf("%s: %s has no endpoints of cluster %s", s.NamespacedName, whose, cluster))
			case len(missing) > 0:
				slices.Sort(missing)
				out = append(out, fmt.Sprintf("%s: %s has not %s of cluster %s", s.NamespacedName, whose, strings.Join(missing, ", "), cluster))
			}
		}
	}
	slices.Sort(out)
	return out
}

// Unadopted returns the services whose ServiceImport Seamark does not manage although it has their
// endpoints.
func Unadopted(services []Service) []string {
	var out []string
	for _, s := range services {
		if s.Imported && !s.Managed && len(s.Seamark) > 0 {
			out = append(out, fmt.Sprintf("%s: Seamark's agent does not manage its ServiceImport yet", s.NamespacedName))
		}
	}
	slices.Sort(out)
	return out
}

// stillManaged returns the services of Lighthouse whose ServiceImport Seamark manages.
func stillManaged(services []Service) []string {
	var out []string
	for _, s := range services {
		if s.Managed && len(s.Lighthouse) > 0 {
			out = append(out, fmt.Sprintf("%s: Seamark's agent still manages its ServiceImport", s.NamespacedName))
		}
	}
	slices.Sort(out)
	return out
}

// hasLeftovers reports whether objects of Lighthouse's agent exist in the cluster.
func hasLeftovers(f Facts) bool {
	return f.Contributions > 0 || slices.ContainsFunc(f.Services, func(s Service) bool { return len(s.Lighthouse) > 0 })
}
