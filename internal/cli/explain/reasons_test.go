package explain

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/seamark-dev/seamark/api/v1alpha1"
)

// readInput reads an input of the golden tests.
func readInput(t *testing.T, name string) Input {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".in.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var in Input
	if err := yaml.UnmarshalStrict(text, &in); err != nil {
		t.Fatal(err)
	}
	return in
}

func codesOf(r Report) map[string]Finding {
	codes := map[string]Finding{}
	for _, f := range r.Findings {
		codes[f.Code] = f
	}
	return codes
}

// Each reason and extra condition of api/v1alpha1/conditions.go leads to its finding, whatever its
// message is; the message is the finding's detail or part of it.
func TestReasonsLeadToFindings(t *testing.T) {
	const east, west = 0, 1 // of the input all-well: east exports, west imports
	export := func(t mcsv1beta1.ServiceExportConditionType) func(*Input, string) {
		return func(in *Input, reason string) {
			c := &in.Clusters[east].Export.Status.Conditions
			for i := range *c {
				if (*c)[i].Type == string(t) {
					(*c)[i].Status, (*c)[i].Reason, (*c)[i].Message = metav1.ConditionFalse, reason, "any text"
				}
			}
		}
	}
	valid, ready := export(mcsv1beta1.ServiceExportConditionValid), export(mcsv1beta1.ServiceExportConditionReady)
	importNotReady := func(in *Input, reason string) {
		c := &in.Clusters[west].Import.Status.Conditions[0]
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, reason, "any text"
	}
	extra := func(in *Input, conditionType string) {
		c := &in.Clusters[west].Import.Status.Conditions
		*c = append(*c, metav1.Condition{Type: conditionType, Status: metav1.ConditionTrue, Reason: "Any", Message: "any text"})
	}
	noAddress := func(in *Input, reason string) {
		in.Broker.Aggregate.Spec.IPs = nil
		ready(in, reason)
	}
	// elsewhere are constants of that file that explain reads in another way.
	elsewhere := map[string]string{
		string(v1alpha1.ServiceExportReasonClusterSetIPConflict): "merge reports it, and explain merges itself",
		string(v1alpha1.ServiceImportReasonNoOtherCluster):       "the condition's type says it",
		string(v1alpha1.ServiceImportReasonAddressNotAllowed):    "the condition's type says it",
		string(v1alpha1.ServiceImportReasonRecordsLost):          "the condition's type says it",
		string(v1alpha1.ServiceImportReasonHeldByExporter):       "the exporter's record says it",
		string(v1alpha1.ServiceExportConditionStalled):           "Valid or Ready says it, with the same reason",
	}
	tests := []struct {
		value string
		set   func(*Input, string)
		code  string
	}{
		{string(v1alpha1.ServiceExportReasonNamespaceNotAllowed), valid, "namespace-not-allowed"},
		{string(v1alpha1.ServiceExportReasonLimitExceeded), valid, "limit-exceeded"},
		{string(mcsv1beta1.ServiceExportReasonNoService), valid, "agent-not-running"},
		{string(mcsv1beta1.ServiceExportReasonInvalidServiceType), valid, "agent-not-running"},
		{string(v1alpha1.ServiceExportReasonClusterIDTaken), ready, "id-taken"},
		{string(v1alpha1.ServiceExportReasonNoClusterSetIPLeft), noAddress, "no-clusterset-ip-left"},
		{string(v1alpha1.ServiceExportReasonRefusedByBroker), ready, "broker-refused"},
		{string(v1alpha1.ServiceExportReasonWaitingForBroker), ready, "waiting-for-broker"},
		{string(v1alpha1.ServiceExportReasonNotMember), ready, "agent-not-running"},
		{string(mcsv1beta1.ServiceExportReasonPending), ready, "not-published"},
		{string(mcsv1beta1.ServiceExportReasonFailed), ready, "broker-refused"}, // of an agent before the typed reasons
		{string(v1alpha1.ServiceImportReasonClusterSetIPRejected), importNotReady, "clusterset-ip-not-used"},
		{string(v1alpha1.ServiceImportReasonDerivedServiceForeign), importNotReady, "derived-service-foreign"},
		{string(v1alpha1.ServiceImportReasonDerivedServiceRefused), importNotReady, "derived-service-refused"},
		{string(mcsv1beta1.ServiceImportReasonIPFamilyNotSupported), importNotReady, "ip-family-not-supported"},
		{string(mcsv1beta1.ServiceImportReasonPending), importNotReady, "import-not-ready"},
		{"OfAnotherVersion", importNotReady, "import-not-ready"},
		{"OfAnotherVersion", ready, "waiting-for-broker"},
		{string(v1alpha1.ServiceImportConditionStaleEndpointsKept), extra, "stale-endpoints-kept"},
		{string(v1alpha1.ServiceImportConditionAddressesRefused), extra, "addresses-refused"},
		{string(v1alpha1.ServiceImportConditionWithdrawalHeld), extra, "withdrawal-held"},
		{string(v1alpha1.ServiceExportReasonWithdrawalHeld), ready, "withdrawal-held"},
	}
	tested := map[string]bool{}
	for _, test := range tests {
		tested[test.value] = true
		t.Run(test.value+" "+test.code, func(t *testing.T) {
			in := readInput(t, "all-well")
			test.set(&in, test.value)
			found := codesOf(Explain(in))
			if f, ok := found[test.code]; !ok || len(found) != 1 {
				t.Errorf("found %+v, want %s", found, test.code)
			} else if f.Detail == "" || f.Cure == "" {
				t.Errorf("incomplete: %+v", f)
			}
		})
	}
	for name, value := range constantsOf(t, filepath.Join("..", "..", "..", "api", "v1alpha1", "conditions.go")) {
		if !tested[value] && elsewhere[value] == "" {
			t.Errorf("%s leads to no finding", name)
		}
	}
}

// constantsOf returns the text constants that a Go file declares, by name.
func constantsOf(t *testing.T, path string) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	constants := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, v := range spec.Values {
			if literal, ok := v.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				value, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				constants[spec.Names[i].Name] = value
			}
		}
		return true
	})
	if len(constants) < 5 {
		t.Fatalf("%s has only %d constants", path, len(constants))
	}
	return constants
}
