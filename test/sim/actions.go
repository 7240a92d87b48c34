package sim

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/objects"
)

// action is one thing that happens in a history. Its numbers choose where and what; they are drawn
// when the history is made, so that dropping other actions does not change it.
type action struct {
	name    string
	member  int
	service int
	random  uint64
}

func (a action) String() string {
	return fmt.Sprintf("%s(member %d, service %d, %d)", a.name, a.member, a.service, a.random%1000)
}

// act is what an action does to a member and a service.
type act struct {
	// weight is how often the action is drawn.
	weight int
	// config is true if it changes what is exported: it never happens to calm services.
	config bool
	do     func(w *world, m *member, service string, random uint64)
}

var acts = map[string]act{
	"export":          {8, true, doExport},
	"unexport":        {4, true, doUnexport},
	"delete service":  {2, true, doDeleteService},
	"replace service": {3, true, doReplaceService},
	"change service":  {4, true, doChangeService},
	"scale":           {3, true, doScale},

	"delete import":     {3, false, doDeleteImport},
	"annotate import":   {2, false, doAnnotateImport},
	"edit import":       {1, false, doEditImport},
	"delete slice":      {1, false, doDeleteSlice},
	"delete aggregate":  {2, false, doDeleteAggregate},
	"delete record":     {1, false, doDeleteRecord},
	"restart agent":     {5, false, doRestart},
	"crash agent":       {5, false, doCrash},
	"change leader":     {3, false, doChangeLeader},
	"member dies":       {4, false, doDie},
	"member returns":    {3, false, doReturn},
	"cut off":           {4, false, doCutOff},
	"reconnect":         {4, false, doReconnect},
	"break watches":     {3, false, doBreakWatches},
	"freeze watch":      {3, false, doFreeze},
	"writes fail":       {3, false, doFail},
	"step clock":        {2, false, doStepClock},
	"set broker back":   {2, false, doSetBack},
	"wait for a minute": {3, false, func(w *world, _ *member, _ string, _ uint64) { w.run(time.Minute) }},
}

// actNames has each action as often as it is to be drawn.
var actNames = namesOfActs("")

// emphases are groups of actions that can be drawn ten times as often, for mends of what happens
// rarely.
var emphases = map[string][]string{
	"death":   {"member dies", "member returns", "wait for a minute"},
	"restore": {"set broker back", "cut off", "reconnect"},
}

// namesOfActs returns the names to draw from, with an emphasis if that is not empty.
func namesOfActs(emphasis string) []string {
	var names []string
	for name, a := range acts {
		weight := a.weight
		if slices.Contains(emphases[emphasis], name) {
			weight *= 10
		}
		for range weight {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// perform does an action and lets the world run for a while, in a way that the action's own number
// chooses.
func (w *world) perform(a action) {
	w.rng.Uint64()
	m := w.members[a.member%len(w.members)]
	at := a.service % len(w.services)
	definition := acts[a.name]
	if definition.config && at < w.calm {
		if w.calm == len(w.services) {
			return
		}
		at = w.calm + a.service%(len(w.services)-w.calm)
	}
	w.logf("%s: %s, service %s", a.name, m.id, w.services[at])
	w.size.actions++
	if !definition.config {
		w.size.faults++
	}
	w.rng = newRand(a.random)
	w.broker.backUp()
	definition.do(w, m, w.services[at], a.random>>8)
	w.settle()
	switch w.rng.IntN(6) {
	case 0: // the next action follows at once
	case 1, 2:
		for range w.rng.IntN(40) {
			w.step()
		}
	case 3:
		for range w.rng.IntN(20) {
			w.step()
		}
		w.sleep(time.Duration(1+w.rng.IntN(3000)) * time.Millisecond)
	case 4:
		w.run(time.Duration(1+w.rng.IntN(5)) * time.Second)
	case 5:
		w.run(time.Duration(1+w.rng.IntN(40)) * time.Second)
	}
}

// serve creates a Service with its endpoints. random chooses its ports, type and families.
func (m *member) serve(service string, random uint64) {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: service}}
	m.shape(svc, random)
	if m.server.create(svc) != nil {
		return
	}
	m.setEndpoints(service, 1+int(random>>16)%2, random>>20%8 > 0)
}

// shape sets the ports, type and families of a Service.
func (m *member) shape(svc *corev1.Service, random uint64) {
	svc.Spec.Type, svc.Spec.SessionAffinity = corev1.ServiceTypeClusterIP, corev1.ServiceAffinityNone
	svc.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyCluster)
	all := []corev1.ServicePort{
		{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80},
		{Name: "metrics", Protocol: corev1.ProtocolTCP, Port: 9090},
		{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53},
	}
	if random%16 == 0 {
		all[0].Port = 8080 // conflicts with others
	}
	svc.Spec.Ports = nil
	for i, p := range all {
		if random>>(4+i)&1 == 1 {
			svc.Spec.Ports = append(svc.Spec.Ports, p)
		}
	}
	if len(svc.Spec.Ports) == 0 {
		svc.Spec.Ports = all[:1]
	}
	if random>>8%6 == 0 {
		svc.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		svc.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To[int32](10800)}}
	}
	headless := random>>12%8 == 0
	if svc.UID == "" && headless {
		svc.Spec.ClusterIP = corev1.ClusterIPNone
	}
	first := corev1.IPv4Protocol
	if len(svc.Spec.IPFamilies) > 0 {
		first = svc.Spec.IPFamilies[0]
	}
	svc.Spec.IPFamilies, svc.Spec.IPFamilyPolicy = []corev1.IPFamily{first}, ptr.To(corev1.IPFamilyPolicySingleStack)
	if len(m.facts.Families) > 1 && random>>24%2 == 0 {
		svc.Spec.IPFamilies, svc.Spec.IPFamilyPolicy = slices.Clone(m.facts.Families), ptr.To(corev1.IPFamilyPolicyRequireDualStack)
	}
	if svc.Spec.ClusterIP != corev1.ClusterIPNone && len(svc.Spec.ClusterIPs) > len(svc.Spec.IPFamilies) {
		svc.Spec.ClusterIPs = svc.Spec.ClusterIPs[:len(svc.Spec.IPFamilies)]
	}
}

// setEndpoints does what the endpoint controller does.
func (m *member) setEndpoints(service string, count int, ready bool) {
	svc := lookup[*corev1.Service](m.server, namespace, service)
	for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		name := service + "-" + string(family)
		old := lookup[*discoveryv1.EndpointSlice](m.server, namespace, name)
		if svc == nil || !slices.Contains(svc.Spec.IPFamilies, family) {
			if old != nil {
				m.world.must(m.server.remove(old, nil))
			}
			continue
		}
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
			AddressType: discoveryv1.AddressType(family),
		}
		for i := range count {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses:  []string{m.podAddress(service, family, i)},
				Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(ready), Serving: ptr.To(ready), Terminating: ptr.To(false)},
				NodeName:   ptr.To("node-" + m.id),
			})
		}
		for _, p := range svc.Spec.Ports {
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{
				Name: ptr.To(p.Name), Protocol: ptr.To(p.Protocol), Port: ptr.To(p.Port + 8000),
			})
		}
		if old == nil {
			m.world.must(m.server.create(slice))
		} else {
			m.world.must(m.server.update(slice, false))
		}
	}
}

// podAddress returns the address of a pod. No two clusters or services have the same.
func (m *member) podAddress(service string, family corev1.IPFamily, pod int) string {
	s := slices.Index(m.world.services, service)
	if family == corev1.IPv6Protocol {
		return fmt.Sprintf("fd20:%d:%d::%d", m.index+1, s+1, pod+1)
	}
	return fmt.Sprintf("10.%d.%d.%d", m.index+1, s+1, pod+1)
}

func doExport(_ *world, m *member, service string, random uint64) {
	m.serve(service, random)
	_ = m.server.create(&mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: service}}) // may exist
}

func doUnexport(_ *world, m *member, service string, _ uint64) {
	remove[*mcsv1beta1.ServiceExport](m.server, namespace, service)
}

func doDeleteService(_ *world, m *member, service string, _ uint64) {
	remove[*corev1.Service](m.server, namespace, service)
	m.setEndpoints(service, 0, false)
}

func doChangeService(_ *world, m *member, service string, random uint64) {
	old := lookup[*corev1.Service](m.server, namespace, service)
	if old == nil {
		return
	}
	svc := old.DeepCopy()
	m.shape(svc, random)
	if m.server.update(svc, false) == nil {
		m.setEndpoints(service, 1+int(random>>16)%2, true)
	}
}

func doScale(_ *world, m *member, service string, random uint64) {
	m.setEndpoints(service, int(random%4), random>>8%4 > 0)
}

func doDeleteImport(w *world, m *member, service string, _ uint64) {
	w.checker.deletedByUser(m, service)
	remove[*mcsv1beta1.ServiceImport](m.server, namespace, service)
}

// foreignKey is an annotation that another controller puts on ServiceImports.
const foreignKey = "example.com/owner"

func doAnnotateImport(w *world, m *member, service string, _ uint64) {
	edit(m.server, namespace, service, func(si *mcsv1beta1.ServiceImport) {
		if si.Annotations == nil {
			si.Annotations = map[string]string{}
		}
		si.Annotations[foreignKey] = "team"
		w.checker.annotated(m, service, string(si.UID))
	})
}

func doEditImport(_ *world, m *member, service string, _ uint64) {
	edit(m.server, namespace, service, func(si *mcsv1beta1.ServiceImport) { si.Spec.SessionAffinity = corev1.ServiceAffinityClientIP })
}

func doDeleteSlice(w *world, m *member, service string, _ uint64) {
	w.checker.deletedByUser(m, service)
	var last *discoveryv1.EndpointSlice
	each(m.server, func(s *discoveryv1.EndpointSlice) {
		if of, ok := objects.ImportedService(s); ok && of.Name == service {
			last = s
		}
	})
	if last != nil {
		w.must(m.server.remove(last, nil))
	}
}

func doDeleteAggregate(w *world, m *member, service string, _ uint64) {
	remove[*mcsv1beta1.ServiceImport](w.broker, brokerNamespace, objects.AggregateName(m.key(service)))
}

func doDeleteRecord(w *world, m *member, service string, _ uint64) {
	if !m.alive() {
		return // it could not put the record back
	}
	w.checker.recordDeleted(service)
	remove[*v1alpha1.ExportRecord](w.broker, brokerNamespace, objects.RecordName(m.key(service), m.id))
}

func remove[P client.Object](s *server, namespace, name string) {
	for _, obj := range []client.Object{lookupObject[P](s, namespace, name)} {
		if obj != nil {
			_ = s.remove(obj, nil) // it exists
		}
	}
}

func edit[P client.Object](s *server, namespace, name string, f func(P)) {
	obj := lookupObject[P](s, namespace, name)
	if obj == nil {
		return
	}
	changed := obj.DeepCopyObject().(P)
	f(changed)
	_ = s.update(changed, false) // it exists
}
