package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
)

// explainBroker adds what could not be read.
func (e *explainer) explainBroker() {
	if e.Broker.Problem != "" {
		e.find(brokerUnreachable, "", e.Broker.Problem,
			"imported services keep working; make the broker's API server reachable again, or read it as its admin with --broker-context. "+
				"seamark doctor checks the connection")
	}
	for i := range e.Clusters {
		if c := &e.Clusters[i]; c.Problem != "" {
			e.find(clusterUnreachable, c.ID, c.Problem, "check the context and its credential: "+c.kubectl("get --raw /readyz"))
		}
	}
}

// explainExporters adds every cluster that has an export of the service or a record of one.
func (e *explainer) explainExporters() {
	for _, id := range e.exporterIDs() {
		c, record := e.cluster(id), e.record(id)
		x := Exporter{Cluster: id, Heartbeat: e.heartbeat(id), Published: record != nil}
		switch {
		case c != nil && c.Export != nil:
			x.ExportedAt = ptr.To(c.Export.CreationTimestamp.UTC())
			x.Service = describeService(c.Service)
			x.Ready, x.Total = CountReady(c.Slices)
			x.State = e.judgeExport(c, record)
		case record != nil:
			x.ExportedAt = ptr.To(record.Spec.ExportedAt.UTC())
			x.Service = describeRecord(&record.Spec)
			x.Ready, x.Total = CountReady(e.slicesOf(id))
			x.State = e.judgeRecord(c, id)
		}
		if record != nil && record.Annotations[v1alpha1.AnnotationWithdrawalHeld] != "" {
			since := record.Annotations[v1alpha1.AnnotationWithdrawalHeld]
			e.withdrawalHeld(id, fmt.Sprintf("most exports of cluster %s are gone there, and its agent saw no user delete them: "+
				"it keeps what it published for %s (since %s)", id, duration.HumanDuration(objects.WithdrawalHold), since))
		}
		if e.stale(id) {
			e.findAs(e.unlessOthers(id), agentSilent, id, fmt.Sprintf("cluster %s renewed its lease %s ago: its agent does not run, "+
				"or cannot reach the broker; changes of its endpoints do not arrive", id, duration.HumanDuration(e.lives[id].Age)), c.agentCure())
		}
		e.report.Exporters = append(e.report.Exporters, x)
	}
	if len(e.report.Exporters) == 0 && e.Broker.Problem == "" {
		e.notExported()
	}
}

// exporterIDs returns the clusters with an export or a record, the oldest export first.
func (e *explainer) exporterIDs() []string {
	when := map[string]time.Time{}
	for i := range e.Broker.Records {
		r := &e.Broker.Records[i]
		when[string(r.Spec.ClusterID)] = r.Spec.ExportedAt.Time
	}
	for i := range e.Clusters {
		if c := &e.Clusters[i]; c.Export != nil {
			when[c.ID] = c.Export.CreationTimestamp.Time
		}
	}
	ids := make([]string, 0, len(when))
	for id := range when {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b string) int {
		if c := when[a].Compare(when[b]); c != 0 {
			return c
		}
		return strings.Compare(a, b)
	})
	return ids
}

func (e *explainer) record(id string) *v1alpha1.ExportRecord {
	for i := range e.Broker.Records {
		if string(e.Broker.Records[i].Spec.ClusterID) == id {
			return &e.Broker.Records[i]
		}
	}
	return nil
}

func (e *explainer) slicesOf(id string) []discoveryv1.EndpointSlice {
	var out []discoveryv1.EndpointSlice
	for _, s := range e.Broker.Slices {
		if s.Labels[mcsv1beta1.LabelSourceCluster] == id {
			out = append(out, s)
		}
	}
	return out
}

// withdrawalHeld adds that a cluster holds the withdrawal of its export.
func (e *explainer) withdrawalHeld(id, detail string) {
	e.find(withdrawalHeld, id, detail, WithdrawalCure(id, e.Broker.Namespace))
}

// WithdrawalCure returns what to do about withdrawals that a cluster holds. namespace is the
// broker's; empty means the default.
func WithdrawalCure(id, namespace string) string {
	return fmt.Sprintf("apply its ServiceExports and Services again; if they are meant to be gone, wait, "+
		"or have the broker's admin delete its records: kubectl -n %s delete exportrecords -l %s=%s",
		cmp.Or(namespace, objects.DefaultNamespace), mcsv1beta1.LabelSourceCluster, id)
}

func (e *explainer) notExported() {
	var have []string
	cure := fmt.Sprintf("export it in the cluster that has the Service: seamark export service %s -n %s", e.Name, e.Namespace)
	for i := range e.Clusters {
		if c := &e.Clusters[i]; c.Service != nil {
			have = append(have, c.ID)
			cure = fmt.Sprintf("seamark export service %s -n %s%s", e.Name, e.Namespace, c.contextFlag())
		}
	}
	detail := fmt.Sprintf("there is no ServiceExport %s/%s in the clusters that were read, and no record on the broker", e.Namespace, e.Name)
	if len(have) > 0 {
		detail += "; the Service exists in " + strings.Join(have, ", ")
	} else if len(e.Clusters) > 0 {
		detail += "; there is no Service of that name either (is the namespace right?)"
	}
	e.find(notExported, "", detail, cure)
}

// judgeExport returns the state of an export in words, by the Service and its own conditions, and
// adds what is wrong with it.
func (e *explainer) judgeExport(c *Cluster, record *v1alpha1.ExportRecord) string {
	valid := meta.FindStatusCondition(c.Export.Status.Conditions, string(mcsv1beta1.ServiceExportConditionValid))
	switch {
	case !c.Member:
		e.find(notMember, c.ID, fmt.Sprintf("the ServiceExport in %s is idle: the cluster is not a member of a clusterset", c.ID),
			"seamark join --help")
		return "idle: not a member"
	case c.Service == nil:
		e.find(noService, c.ID,
			fmt.Sprintf("there is a ServiceExport %s/%s in %s, but no Service of that name", e.Namespace, e.Name, c.ID),
			fmt.Sprintf("create the Service (%s), or delete the export (seamark unexport service %s -n %s%s)",
				c.kubectl("-n %s get services", e.Namespace), e.Name, e.Namespace, c.contextFlag()))
		return "not exported: no Service"
	case c.Service.Spec.Type == corev1.ServiceTypeExternalName:
		e.find(externalName, c.ID,
			fmt.Sprintf("the Service %s/%s in %s is an alias of %s and has no endpoints", e.Namespace, e.Name, c.ID, c.Service.Spec.ExternalName),
			"create the same ExternalName Service in each cluster instead, and delete the export")
		return "not exported: ExternalName"
	case valid == nil || valid.ObservedGeneration < c.Export.Generation:
		e.find(agentNotRunning, c.ID,
			fmt.Sprintf("the ServiceExport in %s has no conditions for its present spec: no agent of that cluster has reconciled it", c.ID),
			c.agentCure())
		e.addWaits(c, exportReconciler)
		return "not exported: no agent"
	case valid.Status != metav1.ConditionTrue:
		return e.judgeInvalid(c, valid)
	}
	return e.judgeReady(c, record)
}

// judgeInvalid adds why an export is not valid although its Service can be exported.
func (e *explainer) judgeInvalid(c *Cluster, valid *metav1.Condition) string {
	switch mcsv1beta1.ServiceExportConditionReason(valid.Reason) {
	case v1alpha1.ServiceExportReasonNamespaceNotAllowed:
		e.find(namespaceNotAllowed, c.ID, valid.Message, allowNamespaceCure(c.ID, e.Namespace))
		return "not exported: namespace not allowed"
	case v1alpha1.ServiceExportReasonLimitExceeded:
		e.find(limitExceeded, c.ID, valid.Message, fmt.Sprintf("unexport services that are not needed, "+
			"or have the broker's admin raise spec.limits: kubectl -n %s edit clusters.seamark.dev %s", e.Broker.Namespace, c.ID))
		return "not exported: limit exceeded"
	case mcsv1beta1.ServiceExportReasonNoService, mcsv1beta1.ServiceExportReasonInvalidServiceType:
		e.find(agentNotRunning, c.ID,
			fmt.Sprintf("the conditions of the ServiceExport in %s describe an earlier state of the Service: %s", c.ID, valid.Message),
			c.agentCure())
		return "not exported: " + valid.Reason
	}
	e.find(refusedByBroker, c.ID, valid.Message, c.agentCure())
	return "not exported: " + valid.Reason
}

func allowNamespaceCure(id, namespace string) string {
	return fmt.Sprintf("the broker's admin lists the namespaces of this member: "+
		"seamark broker invite %s --renew --allow-namespaces %s,…", id, namespace)
}

// judgeReady adds why a valid export is not published.
func (e *explainer) judgeReady(c *Cluster, record *v1alpha1.ExportRecord) string {
	ready := meta.FindStatusCondition(c.Export.Status.Conditions, string(mcsv1beta1.ServiceExportConditionReady))
	switch {
	case ready == nil:
		e.find(agentNotRunning, c.ID, fmt.Sprintf("the ServiceExport in %s has no Ready condition", c.ID), c.agentCure())
		return "unknown"
	case ready.Status == metav1.ConditionTrue && e.Broker.Problem == "" && record == nil:
		e.find(notPublished, c.ID, fmt.Sprintf("the ServiceExport in %s is Ready, but the broker has no record of it", c.ID), c.agentCure())
		e.addWaits(c, exportReconciler)
		return "not published"
	case ready.Status == metav1.ConditionTrue:
		return e.judgeRecord(c, c.ID)
	}
	switch mcsv1beta1.ServiceExportConditionReason(ready.Reason) {
	case v1alpha1.ServiceExportReasonClusterIDTaken:
		e.find(idTaken, c.ID, ready.Message,
			fmt.Sprintf("in the cluster that should not have the id: seamark leave%s, then join with another --clusterid", c.contextFlag()))
		return "not published: id taken"
	case v1alpha1.ServiceExportReasonRefusedByBroker,
		mcsv1beta1.ServiceExportReasonFailed: // agents before RefusedByBroker set it for the same
		e.find(refusedByBroker, c.ID, ready.Message, "the message names the rule of the broker that refused it: show it to the broker's admin. "+
			"If the member lacks permissions, the broker's admin restores them (seamark broker invite "+c.ID+" --renew)")
		return "not published: refused"
	case mcsv1beta1.ServiceExportReasonTypeConflict, mcsv1beta1.ServiceExportReasonIPFamilyConflict:
		return "not exported, left out: " + ready.Reason // explainConflict adds the finding
	case v1alpha1.ServiceExportReasonNoClusterSetIPLeft:
		return "published, without a clusterset IP" // explainAddress adds the finding
	case v1alpha1.ServiceExportReasonWithdrawalHeld:
		e.withdrawalHeld(c.ID, ready.Message)
		return "published, withdrawal held"
	case v1alpha1.ServiceExportReasonNotMember:
		e.find(agentNotRunning, c.ID,
			fmt.Sprintf("no agent has reconciled the ServiceExport since %s joined again: %s", c.ID, ready.Message), c.agentCure())
		return "not published: no agent"
	case mcsv1beta1.ServiceExportReasonPending:
		e.find(notPublished, c.ID, fmt.Sprintf("the ServiceExport in %s is not Ready: %s", c.ID, ready.Message),
			"if that lasts longer than some seconds: "+c.agentCure())
		e.addWaits(c, exportReconciler)
		return "being published"
	}
	e.find(waitingForBroker, c.ID, ready.Message,
		"the export completes by itself when the broker answers; seamark doctor"+c.contextFlag()+" checks the connection")
	return "waiting for the broker"
}

// judgeRecord returns the state of what the broker has of a cluster, in words, and adds what is
// wrong with it; c is nil when the cluster was not read.
func (e *explainer) judgeRecord(c *Cluster, id string) string {
	switch member := e.Broker.member(id); {
	case e.Broker.Problem != "":
	case member == nil:
		e.find(notMember, id, fmt.Sprintf("the broker has a record of cluster %s, which is not a member: importers ignore it", id),
			fmt.Sprintf("delete what is left of it (seamark cluster remove %s), or admit the cluster (seamark broker invite %s)", id, id))
		return "ignored: not a member"
	case !objects.MayExport(member, e.Namespace):
		e.find(namespaceNotAllowed, id, fmt.Sprintf("the broker has a record of cluster %s, whose Cluster object does not allow namespace %s: "+
			"importers ignore it", id, e.Namespace), allowNamespaceCure(id, e.Namespace))
		return "ignored: namespace not allowed"
	}
	if why, out := e.merged.LeftOut[id]; out {
		return "not exported, left out: " + string(why)
	}
	slices := e.slicesOf(id)
	if c != nil && c.Service != nil {
		slices = c.Slices
	}
	ready, total := CountReady(slices)
	if ready == 0 {
		cure := "see why its pods are not ready"
		if total == 0 {
			cure = "see whether the Service's selector matches any pod"
		}
		e.findAs(e.unlessOthers(id), noReadyEndpoints, id,
			fmt.Sprintf("%d of %d endpoints in %s are ready: this cluster serves no client", ready, total, id),
			fmt.Sprintf("%s: %s", cure, c.kubectl("-n %s get endpointslices -l kubernetes.io/service-name=%s", e.Namespace, e.Name)))
		return "published, nothing ready"
	}
	return "published"
}

// unlessOthers returns the severity of a cluster that does not serve: a warning while another that
// is alive does.
func (e *explainer) unlessOthers(id string) Severity {
	for _, other := range e.merged.Clusters {
		if other != id && e.serves(other) {
			return Warn
		}
	}
	return Fail
}

// serves reports whether a cluster is alive and has published ready endpoints.
func (e *explainer) serves(id string) bool {
	ready, _ := CountReady(e.slicesOf(id))
	return ready > 0 && !e.stale(id)
}

// CountReady returns how many endpoints of slices are ready, and how many there are. An endpoint
// with several IP families counts once for each, as clients see it.
func CountReady(slices []discoveryv1.EndpointSlice) (ready, total int) {
	for i := range slices {
		for j := range slices[i].Endpoints {
			total++
			if ptr.Deref(slices[i].Endpoints[j].Conditions.Ready, true) {
				ready++
			}
		}
	}
	return ready, total
}

// describeService returns the type and ports of a Service, in the words of records.
func describeService(svc *corev1.Service) string {
	if svc == nil {
		return "none"
	}
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		return "ExternalName"
	}
	ports := make([]string, len(svc.Spec.Ports))
	for i, p := range svc.Spec.Ports {
		ports[i] = describePort(p.Name, p.Protocol, p.Port)
	}
	kind := mcsv1beta1.ClusterSetIP
	if svc.Spec.ClusterIP == corev1.ClusterIPNone {
		kind = mcsv1beta1.Headless
	}
	return strings.TrimSpace(string(kind) + " " + strings.Join(ports, ","))
}

func describeRecord(spec *v1alpha1.ExportRecordSpec) string {
	ports := make([]string, len(spec.Ports))
	for i, p := range spec.Ports {
		ports[i] = describePort(p.Name, p.Protocol, p.Port)
	}
	return strings.TrimSpace(string(spec.Type) + " " + strings.Join(ports, ","))
}

func describePort(name string, protocol corev1.Protocol, number int32) string {
	if protocol == "" {
		protocol = corev1.ProtocolTCP
	}
	text := fmt.Sprintf("%d/%s", number, protocol)
	if name != "" {
		text = name + ":" + text
	}
	return text
}
