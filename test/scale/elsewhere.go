package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/brokeradmin"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/bench/usage"
	"github.com/seamark-dev/seamark/test/harness"
)

const (
	// perAbsent is how many services a member without an agent exports, and perNamespace how many of
	// them share a namespace.
	perAbsent    = 10_000
	perNamespace = 100
)

// elsewhere measures what services cost a member that does not import them. Members without agents
// export them, in namespaces that no other cluster has. Their objects are written to the broker
// directly, as copies of those that an agent wrote.
func elsewhere(ctx context.Context, e *environment, size sizes, r results) error {
	from, err := e.readTemplate(ctx)
	if err != nil {
		return err
	}
	total := e.exported()
	if err := e.measureWith(ctx, total, size, r); err != nil {
		return err
	}
	for _, want := range size.elsewhere {
		if want <= total {
			continue
		}
		r.Say("elsewhere: adding services until there are %d", want)
		start := time.Now()
		if err := e.copyServices(ctx, from, total-e.exported(), want-total); err != nil {
			return err
		}
		r.Say("elsewhere: added %d in %s", want-total, time.Since(start).Round(time.Second))
		total = want
		if err := e.measureWith(ctx, total, size, r); err != nil {
			return err
		}
	}
	return nil
}

// measureWith measures a clusterset of so many services.
func (e *environment) measureWith(ctx context.Context, services int, size sizes, r results) error {
	if err := sleep(ctx, size.after); err != nil {
		return err
	}
	add := func(name string, value float64, unit, detail string) { r.AddWith(services, name, value, unit, detail) }
	imports := fmt.Sprintf("it imports %d", len(e.teams[0].services))
	running := e.memory()
	after, err := e.memoryAfterRestart(ctx, size)
	if err != nil {
		return err
	}
	add("memory of a real agent", running, "MiB", imports)
	add("memory of a real agent after a restart", after, "MiB", imports)
	broker, err := e.now(ctx)
	if err != nil {
		return err
	}
	add("memory of the broker's API server", float64(broker.apiServer.Resident)/mib, "MiB", "")
	add("memory of the broker's etcd", float64(broker.etcd.Resident)/mib, "MiB", "")
	measured, err := e.propagate(ctx, size.rounds)
	addPropagation(measured, add)
	return err
}

// exported returns how many services members with agents export.
func (e *environment) exported() (n int) {
	for _, t := range e.teams {
		n += len(t.services)
	}
	return n
}

// memory returns what the measured agent uses, in MiB, without the program itself.
func (e *environment) memory() float64 { return float64(usage.Of(e.importer().PID()).Anonymous) / mib }

// memoryAfterRestart restarts the measured agent and returns what it uses when it has come to rest.
func (e *environment) memoryAfterRestart(ctx context.Context, size sizes) (float64, error) {
	e.importer().Kill()
	if err := e.importer().StartBinary(e.binary); err != nil {
		return 0, err
	}
	if err := e.changeEach(ctx); err != nil {
		return 0, err
	}
	if _, err := e.awaitSettled(ctx); err != nil {
		return 0, err
	}
	if err := sleep(ctx, size.after); err != nil {
		return 0, err
	}
	return e.memory(), nil
}

// template is what one exporter wrote for one service.
type template struct {
	record    v1alpha1.ExportRecord
	slice     discoveryv1.EndpointSlice
	aggregate mcsv1beta1.ServiceImport
}

func (e *environment) readTemplate(ctx context.Context) (*template, error) {
	out := &template{}
	records := &v1alpha1.ExportRecordList{}
	if err := e.fleet.Admin.List(ctx, records, client.InNamespace(objects.DefaultNamespace)); err != nil {
		return nil, err
	}
	if len(records.Items) == 0 {
		return nil, fmt.Errorf("no member has exported a service: use -services")
	}
	out.record = records.Items[0]
	service, _ := objects.ServiceOf(&out.record)
	found := &discoveryv1.EndpointSliceList{}
	err := e.fleet.Admin.List(ctx, found, client.InNamespace(objects.DefaultNamespace),
		client.MatchingLabels(objects.Labels(service, string(out.record.Spec.ClusterID))))
	if err != nil || len(found.Items) == 0 {
		return nil, fmt.Errorf("read the slices of %s: %d, %w", service, len(found.Items), err)
	}
	out.slice = found.Items[0]
	key := client.ObjectKey{Namespace: objects.DefaultNamespace, Name: objects.AggregateName(service)}
	return out, e.fleet.Admin.Get(ctx, key, &out.aggregate)
}

// copyServices adds n services, of which the first has this number.
func (e *environment) copyServices(ctx context.Context, from *template, first, n int) error {
	blocks := map[int]netip.Addr{}
	for k := first / perAbsent; k <= (first+n-1)/perAbsent; k++ {
		block, err := e.inviteAbsent(ctx, absentID(k))
		if err != nil {
			return err
		}
		blocks[k] = block
	}
	return harness.Parallel(2*workers, n, func(i int) error {
		number := first + i
		address := blocks[number/perAbsent].As4()
		address[2] += byte(number % perAbsent >> 8)
		address[3] = byte(number % perAbsent)
		return e.copyService(ctx, from, absentID(number/perAbsent), types.NamespacedName{
			Namespace: fmt.Sprintf("elsewhere-%d", number/perNamespace), Name: fmt.Sprintf("svc-%d", number),
		}, netip.AddrFrom4(address))
	})
}

func absentID(number int) string { return fmt.Sprintf("absent-%d", number) }

// inviteAbsent invites a cluster, unless it is a member, and returns where its block of clusterset
// IPs begins.
func (e *environment) inviteAbsent(ctx context.Context, id string) (begin netip.Addr, err error) {
	cluster, key := &v1alpha1.Cluster{}, client.ObjectKey{Namespace: objects.DefaultNamespace, Name: id}
	err = e.fleet.Admin.Get(ctx, key, cluster)
	if apierrors.IsNotFound(err) {
		options := brokeradmin.InviteOptions{Server: e.broker.Config.Host, CAData: e.broker.Config.CAData}
		if _, err := brokeradmin.Invite(ctx, e.fleet.Admin, id, options); err != nil {
			return begin, err
		}
		err = e.fleet.Admin.Get(ctx, key, cluster)
	}
	if err != nil {
		return begin, err
	}
	block, err := netip.ParsePrefix(string(cluster.Spec.ClusterSetIPBlocks[0]))
	return block.Addr(), err
}

// copyService creates what a cluster writes for a service.
func (e *environment) copyService(ctx context.Context, from *template, id string, service types.NamespacedName, address netip.Addr) error {
	meta := func(name, id string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: objects.DefaultNamespace, Name: name, Labels: objects.Labels(service, id)}
	}
	record, slice, aggregate := from.record.DeepCopy(), from.slice.DeepCopy(), from.aggregate.DeepCopy()
	record.ObjectMeta = meta(objects.RecordName(service, id), id)
	record.Spec.ServiceName, record.Spec.ServiceNamespace, record.Spec.ClusterID = service.Name, service.Namespace, v1alpha1.ClusterID(id)
	record.Spec.ClusterSetIPs = []string{address.String()}
	objects.SetClaimLabels(record)
	labels := slice.Labels
	slice.ObjectMeta = meta(objects.SliceName(service, id, "0"), id)
	slice.Labels[discoveryv1.LabelManagedBy] = labels[discoveryv1.LabelManagedBy]
	aggregate.ObjectMeta = meta(objects.AggregateName(service), "")
	aggregate.Spec.IPs = []string{address.String()}
	for _, obj := range []client.Object{record, slice, aggregate} {
		if err := e.fleet.Admin.Create(ctx, obj); err != nil {
			return fmt.Errorf("copy %T for %s: %w", obj, service, err)
		}
	}
	aggregate.Status = mcsv1beta1.ServiceImportStatus{Clusters: []mcsv1beta1.ClusterStatus{{Cluster: id}}}
	return e.fleet.Admin.Status().Update(ctx, aggregate)
}
