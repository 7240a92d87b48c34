package migrate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/install/crds"
	"github.com/seamark-dev/seamark/internal/objects"
)

// Severity is what a finding means for the move.
type Severity string

const (
	// Blocks means that the move cannot start.
	Blocks Severity = "blocks"
	// Warns means that something changes for users, or needs a hand.
	Warns Severity = "warns"
)

// Finding is what a check found.
type Finding struct {
	Code     string   `json:"code"`
	Severity Severity `json:"severity"`
	Detail   string   `json:"detail"`
	// Fix is what to do.
	Fix string `json:"fix"`
}

// rules are all checks, in the order in which their findings are shown.
var rules = []struct {
	code     string
	severity Severity
	find     func(f Facts) (detail, fix string)
}{
	{"version", Blocks, findVersion},
	{"globalnet", Blocks, findGlobalnet},
	{"cluster-id", Blocks, findClusterID},
	{"ranges", Blocks, findRanges},
	{"old-imports", Blocks, findOldImports},
	{"clusterset-ips", Blocks, findClusterSetIPs},
	{"crds", Blocks, findKinds},
	{"stored-versions", Warns, findStored},
	{"managed-submariner", Warns, findManagedBy},
	{"dns-configuration", Warns, findDNS},
	{"custom-domains", Warns, findCustomDomains},
	{"reserved-namespaces", Warns, findReserved},
	{"conflicts", Warns, findConflicts},
	{"service-types", Warns, findServiceTypes},
}

// Check returns what would break or change in a move, or hinder it.
func Check(f Facts) []Finding {
	if f.Submariner == nil {
		return []Finding{{"no-lighthouse", Blocks, "this cluster has no Submariner resource",
			"there is nothing to move: make the cluster a member with seamark join"}}
	}
	if f.Phase == "" && !f.Submariner.DiscoveryEnabled {
		return []Finding{{"no-lighthouse", Blocks, "Submariner runs without service discovery in this cluster",
			"there is nothing to move: make the cluster a member with seamark join, which works beside Submariner's tunnels"}}
	}
	var out []Finding
	for _, rule := range rules {
		if detail, fix := rule.find(f); detail != "" {
			out = append(out, Finding{rule.code, rule.severity, detail, fix})
		}
	}
	return out
}

// Blocking reports whether one of the findings blocks the move.
func Blocking(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.Severity == Blocks })
}

func findVersion(f Facts) (detail, fix string) {
	v := strings.TrimPrefix(f.Submariner.Version, "v")
	if v == Version || strings.HasPrefix(v, Version+".") || strings.HasPrefix(v, "release-"+Version) {
		return "", ""
	}
	return fmt.Sprintf("Submariner is of version %q, and the move is made for %s", f.Submariner.Version, Version),
		fmt.Sprintf("upgrade Submariner in all clusters to %s with subctl upgrade, then check again", Version)
}

func findGlobalnet(f Facts) (detail, fix string) {
	if f.Submariner.GlobalCIDR == "" {
		return "", ""
	}
	return fmt.Sprintf("Globalnet is enabled (%s): pods of other clusters are reached by addresses that Submariner translates",
			f.Submariner.GlobalCIDR),
		"Seamark needs clusters whose addresses do not overlap; this clusterset cannot be moved before its clusters have such addresses"
}

func findClusterID(f Facts) (detail, fix string) {
	id := f.Submariner.ClusterID
	switch {
	case brokeradmin.CheckClusterID(id) != nil:
		return fmt.Sprintf("the cluster id %q is invalid for the MCS API: %v", id, brokeradmin.CheckClusterID(id)),
			"join the cluster to Submariner again under a valid id"
	case f.Member != nil && f.Member.ClusterID != id:
		return fmt.Sprintf("this cluster is a member of clusterset %s as %s, but Submariner calls it %s; names of single clusters would change",
				f.Member.ClusterSet, f.Member.ClusterID, id),
			fmt.Sprintf("leave the clusterset with seamark leave, then join it with --clusterid %s", id)
	case f.Member == nil && f.ClusterID != "" && f.ClusterID != id:
		return fmt.Sprintf("ClusterProperty cluster.clusterset.k8s.io says that this cluster is %s, but Submariner calls it %s", f.ClusterID, id),
			fmt.Sprintf("change the property to %s, unless another tool depends on it", id)
	}
	return "", ""
}

func findRanges(f Facts) (detail, fix string) {
	own := f.Submariner.ClusterID
	for _, id := range slices.Sorted(maps.Keys(f.Submariner.Ranges)) {
		if id == own {
			continue
		}
		for _, other := range f.Submariner.Ranges[id] {
			for _, r := range f.Submariner.Ranges[own] {
				if r.Overlaps(other) {
					return fmt.Sprintf("range %s of this cluster and %s of cluster %s overlap: "+
							"Seamark refuses endpoints in a cluster's own ranges", r, other, id),
						"give one of the clusters other ranges: endpoints cannot be told apart"
				}
			}
		}
	}
	return "", ""
}

func findOldImports(f Facts) (detail, fix string) {
	if len(f.OldImports) == 0 {
		return "", ""
	}
	return fmt.Sprintf("%s in the form of Lighthouse before 0.15, one per cluster: %s",
			plural(len(f.OldImports), "ServiceImport is", "ServiceImports are"), names(f.OldImports)),
		"upgrade every cluster to 0.19 first, which converts them, then to " + Version +
			"; delete those of clusters that left: kubectl delete serviceimports.multicluster.x-k8s.io -A -l " + labelOldSourceCluster
}

func findClusterSetIPs(f Facts) (detail, fix string) {
	var with []types.NamespacedName
	for _, s := range f.Services {
		if len(s.IPs) > 0 && !s.Managed {
			with = append(with, s.NamespacedName)
		}
	}
	if len(with) == 0 {
		return "", ""
	}
	return fmt.Sprintf("%s a clusterset IP of Lighthouse, which would change: %s", plural(len(with), "service has", "services have"), names(with)),
		"export them again with the annotation lighthouse.submariner.io/use-clusterset-ip: \"false\" on the ServiceExports " +
			"of all clusters; after the move they can have clusterset IPs of Seamark"
}

func findKinds(f Facts) (detail, fix string) {
	for _, k := range f.Kinds {
		if k.Refused != "" {
			return fmt.Sprintf("CRD %s cannot be used beside Submariner's operator: %s", k.Name, k.Refused),
				"upgrade the tool that installed it, or Seamark"
		}
	}
	return "", ""
}

func findStored(f Facts) (detail, fix string) {
	for _, k := range f.Kinds {
		if k.storesOther() {
			return fmt.Sprintf("objects of %s may be stored as %s, with which Submariner's operator does not start",
					k.Name, strings.Join(k.Stored, " and ")),
				"start stores them as " + crds.OldestStored + " again; both versions stay served"
		}
	}
	return "", ""
}

func findManagedBy(f Facts) (detail, fix string) {
	if f.Submariner.ManagedBy == "" {
		return "", ""
	}
	return fmt.Sprintf("the Submariner resource is managed by %s, which would undo what switch and finish change in it", f.Submariner.ManagedBy),
		fmt.Sprintf("before switch, let %s set spec.coreDNSCustomConfig to {configMapName: %s, namespace: %s}; before finish, let it set "+
			"spec.serviceDiscoveryEnabled to false", f.Submariner.ManagedBy, UnusedDNSConfigMap, f.Submariner.Namespace)
}

func findDNS(f Facts) (detail, fix string) {
	if f.DNS.Unsupported == "" {
		return "", ""
	}
	return "switch cannot change the cluster's DNS: " + f.DNS.Unsupported,
		"make it forward clusterset.local to Service seamark-system/seamark-dns when switch asks for it, and give switch --dns-changed"
}

func findCustomDomains(f Facts) (detail, fix string) {
	if len(f.Submariner.CustomDomains) == 0 {
		return "", ""
	}
	return fmt.Sprintf("Lighthouse also answers the zones %s, and Seamark answers clusterset.local only",
			strings.Join(f.Submariner.CustomDomains, ", ")),
		"let clients use names in clusterset.local before switch"
}

func findReserved(f Facts) (detail, fix string) {
	var reserved []string
	for _, s := range f.Services {
		if objects.IsReserved(s.Namespace) {
			reserved = append(reserved, s.Namespace)
		}
	}
	if reserved = slices.Compact(slices.Sorted(slices.Values(reserved))); len(reserved) == 0 {
		return "", ""
	}
	return fmt.Sprintf("services of reserved namespaces are exported (%s), which Seamark does only if the broker's admin allows it",
			strings.Join(reserved, ", ")),
		"invite every member with --allow-namespaces and a list that contains them"
}

func findConflicts(f Facts) (detail, fix string) {
	var conflicting []types.NamespacedName
	for _, e := range f.Exports {
		if e.Conflict != "" {
			conflicting = append(conflicting, e.NamespacedName)
		}
	}
	if len(conflicting) == 0 {
		return "", ""
	}
	return fmt.Sprintf("clusters export %s differently: %s. After the move the cluster that joined first decides",
			plural(len(conflicting), "service", "services"), names(conflicting)),
		"make the Services agree, or join the cluster with the oldest exports first"
}

func findServiceTypes(f Facts) (detail, fix string) {
	var other []types.NamespacedName
	for _, e := range f.Exports {
		if e.ServiceType != "" && e.ServiceType != corev1.ServiceTypeClusterIP && e.ServiceType != corev1.ServiceTypeExternalName {
			other = append(other, e.NamespacedName)
		}
	}
	if len(other) == 0 {
		return "", ""
	}
	return fmt.Sprintf("Lighthouse exports only Services of type ClusterIP, Seamark exports these too: %s", names(other)),
		"delete the ServiceExports of those that should stay in their cluster"
}

// shown is how many names a finding lists.
const shown = 5

func names(all []types.NamespacedName) string {
	texts := make([]string, len(all))
	for i, n := range all {
		texts[i] = n.String()
	}
	slices.Sort(texts)
	if len(texts) > shown {
		return fmt.Sprintf("%s and %d more", strings.Join(texts[:shown], ", "), len(texts)-shown)
	}
	return strings.Join(texts, ", ")
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
