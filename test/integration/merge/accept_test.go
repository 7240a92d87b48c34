// Package merge_test shows the outcome of internal/merge to a real API server, which must accept all of it: a fake client
// once hid from others that it does not.
package merge_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/mcs-api/config/crd"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/seamark-dev/seamark/api/v1alpha1"
	"github.com/seamark-dev/seamark/internal/agent/imports"
	"github.com/seamark-dev/seamark/internal/merge/mergetest"
	"github.com/seamark-dev/seamark/internal/objects"
	"github.com/seamark-dev/seamark/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

type records = []v1alpha1.ExportRecordSpec

// server is an API server that knows the MCS API, and a namespace on it with one ServiceExport. Everything else is only
// tried (dry run), so that nothing piles up.
type server struct {
	client.Client
	namespace string
	export    *mcsv1beta1.ServiceExport
}

func newServer(t *testing.T) server {
	t.Helper()
	cp := harness.Clusters(t, 1)[0]
	s := server{Client: harness.Client(t, cp), namespace: harness.Namespace(t, cp)}
	install(t, s, crd.ServiceImportCRD)
	install(t, s, crd.ServiceExportCRD)

	s.export = &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "web"}}
	harness.Eventually(t, "the API server serves ServiceExports", func() error {
		err := s.Create(t.Context(), s.export)
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	harness.Eventually(t, "the API server serves ServiceImports", func() error {
		return s.List(t.Context(), &mcsv1beta1.ServiceImportList{})
	})
	return s
}

func install(t *testing.T, s server, manifest []byte) {
	t.Helper()
	def := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(manifest, def); err != nil {
		t.Fatal(err)
	}
	if err := s.Create(t.Context(), def); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	harness.Eventually(t, def.Name+" is established", func() error {
		if err := s.Get(t.Context(), client.ObjectKeyFromObject(def), def); err != nil {
			return err
		}
		for _, c := range def.Status.Conditions {
			if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("conditions: %v", def.Status.Conditions)
	})
}

type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

// accepts tries the aggregate, the import, the derived Service, and the condition of the exports.
func (s server) accepts(t *testing.T, ft tester, in records) {
	ft.Helper()
	r := mergetest.Merge(in)
	meta := metav1.ObjectMeta{Namespace: s.namespace, Name: "tried", Labels: r.Labels, Annotations: r.Annotations}
	aggregate := &mcsv1beta1.ServiceImport{ObjectMeta: meta, Spec: r.Spec}
	if err := s.Create(t.Context(), aggregate, client.DryRunAll); err != nil {
		ft.Fatalf("the ServiceImport is refused: %v", err)
	}
	plan := s.importOf(in)
	if err := s.Create(t.Context(), plan.Import, client.DryRunAll); err != nil {
		ft.Fatalf("the import is refused: %v", err)
	}
	if plan.Derived.Want != nil {
		if err := s.Create(t.Context(), plan.Derived.Want, client.DryRunAll); err != nil {
			ft.Fatalf("the derived Service is refused: %v", err)
		}
	}
	status, reason, message := r.Condition()
	export := s.export.DeepCopy()
	export.Status.Conditions = []metav1.Condition{{
		Type: string(mcsv1beta1.ServiceExportConditionConflict), Status: status, Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(mergetest.Epoch),
	}}
	if err := s.Status().Update(t.Context(), export, client.DryRunAll); err != nil {
		ft.Fatalf("the condition is refused: %v", err)
	}
}

// importOf is what a cluster makes of these records, its derived Service included.
func (s server) importOf(in records) imports.Plan {
	input := imports.Input{
		Settings: imports.Settings{
			ClusterID: "here", Families: []corev1.IPFamily{corev1.IPv4Protocol}, DataPlane: objects.DataPlaneOf(v1alpha1.DataPlaneService),
		},
		Service: types.NamespacedName{Namespace: s.namespace, Name: "tried"},
	}
	for i := range in {
		input.Records = append(input.Records, &v1alpha1.ExportRecord{Spec: in[i]})
	}
	return imports.Decide(input)
}

func TestAPIServerAcceptsWhatTheCRDLetsIn(t *testing.T) {
	s := newServer(t)
	rapid.Check(t, func(rt *rapid.T) {
		s.accepts(t, rt, mergetest.Valid().Draw(rt, "records"))
	})
}

func TestAPIServerAcceptsWhateverComes(t *testing.T) {
	s := newServer(t)
	rapid.Check(t, func(rt *rapid.T) {
		if in := mergetest.Arbitrary().Draw(rt, "records"); !mergetest.Merge(in).Empty() {
			s.accepts(t, rt, in)
		}
	})
}

func TestAPIServerAcceptsTheExtremes(t *testing.T) {
	s := newServer(t)
	for name, in := range map[string]records{
		"an unnamed port meets named ones": {
			mergetest.Record("a", 1, mergetest.Ports(mergetest.Port("", corev1.ProtocolTCP, 80))),
			mergetest.Record("b", 2, mergetest.Ports(mergetest.Port("http", corev1.ProtocolTCP, 81))),
		},
		"headless without ports":          {mergetest.Record("a", 1, mergetest.Headless(), mergetest.Ports())},
		"headless with affinity":          {mergetest.Record("a", 1, mergetest.Headless(), mergetest.Sticky(60))},
		"values of a later version":       {mergetest.Record("a", 1, mergetest.Distribution("Later"), mergetest.Families("IPv9"))},
		"more annotations than there may": {mergetest.Record("a", 1, mergetest.Annotations(annotations(300<<10)...))},
		"more labels than is reasonable":  {mergetest.Record("a", 1, mergetest.Labels(labels(3000)...))},
		"nothing in common": {
			mergetest.Record("a", 1, mergetest.ClusterSetIP(false, false)),
			mergetest.Record("b", 2, mergetest.ClusterSetIP(false, false),
				mergetest.Ports(mergetest.Port("dns", corev1.ProtocolUDP, 53))),
		},
		"a crowd, each with its own ports and labels": crowd(600),
	} {
		t.Run(name, func(t *testing.T) { s.accepts(t, t, in) })
	}
}

func annotations(size int) []string {
	var pairs []string
	for n := 0; n < size; n += 4 << 10 {
		pairs = append(pairs, fmt.Sprintf("example.com/a%06d", n), strings.Repeat("x", 4<<10))
	}
	return pairs
}

func labels(count int) []string {
	var pairs []string
	for n := range count {
		pairs = append(pairs, fmt.Sprintf("%s.example.com/label-%06d", strings.Repeat("x", 60), n), strings.Repeat("v", 63))
	}
	return pairs
}

// crowd is beyond every limit: together in ports, and each 25th by itself in labels; all in annotations.
func crowd(n int) records {
	in := make(records, n)
	tooManyAnnotations, tooManyLabels := annotations(300<<10), labels(500)
	for c := range in {
		var ports []v1alpha1.ServicePort
		for p := range 4 {
			number := int32(1 + c*4 + p)
			ports = append(ports, mergetest.AppPort(fmt.Sprintf("%s-%05d", strings.Repeat("p", 57), number), number,
				strings.Repeat("d", 63)+".example.com/"+strings.Repeat("a", 63)))
		}
		own := tooManyLabels
		if c%25 > 0 {
			own = labels(c % 25)
		}
		in[c] = mergetest.Record(fmt.Sprintf("%s-%04d", strings.Repeat("c", 58), c), c, mergetest.Ports(ports...),
			mergetest.Labels(own...), mergetest.Annotations(tooManyAnnotations...))
	}
	return in
}

// The tests above mean something only if the API server does refuse what merging must avoid.
func TestAPIServerRefuses(t *testing.T) {
	s := newServer(t)
	meta := metav1.ObjectMeta{Namespace: s.namespace, Name: "refused"}
	service := func(ports ...corev1.ServicePort) *corev1.Service {
		return &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: ports}}
	}
	bad := mergetest.Merge(records{mergetest.Record("a", 1)}).Spec
	bad.Ports = nil
	long := metav1.ObjectMeta{Namespace: s.namespace, Name: "refused", Annotations: map[string]string{
		"k": strings.Repeat("x", 257<<10)}}
	for name, object := range map[string]client.Object{
		"unnamed beside named": service(corev1.ServicePort{Port: 80}, corev1.ServicePort{Name: "http", Port: 81}),
		"a name twice":         service(corev1.ServicePort{Name: "http", Port: 80}, corev1.ServicePort{Name: "http", Port: 81}),
		"a number twice":       service(corev1.ServicePort{Name: "a", Port: 80}, corev1.ServicePort{Name: "b", Port: 80}),
		"ports that are nil":   &mcsv1beta1.ServiceImport{ObjectMeta: meta, Spec: bad},
		"too many annotations": &mcsv1beta1.ServiceImport{ObjectMeta: long, Spec: mergetest.Merge(records{mergetest.Record("a", 1)}).Spec},
	} {
		t.Run(name, func(t *testing.T) {
			if err := s.Create(t.Context(), object, client.DryRunAll); !apierrors.IsInvalid(err) {
				t.Errorf("the API server says %v, want it to call the object invalid", err)
			}
		})
	}
}
