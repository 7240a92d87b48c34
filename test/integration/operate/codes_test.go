package operate_test

import (
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/seamark-dev/seamark/internal/cli/doctor"
	"github.com/seamark-dev/seamark/internal/cli/explain"
)

// shownBy names, for each code of explain and doctor, the test of this package that produces it on
// a real clusterset. Each of these tests fails unless it has seen its codes. A check of doctor
// counts when it warns or fails.
var shownBy = map[string]string{
	"not-exported":          "TestExplainNotExported",
	"no-service":            "TestExplainNoService",
	"external-name":         "TestExplainExternalName",
	"namespace-not-allowed": "TestExplainNamespaceNotAllowed",
	"limit-exceeded":        "TestDoctorFinds",
	"withdrawal-held":       "TestDoctorFinds",
	"not-a-member":          "TestStatusWhereThereIsNothing",
	"agent-silent":          "TestExplainStoppedExporterAndBroker",
	"agent-not-running":     "TestExplainStoppedExporterAndBroker",
	"broker-refused":        "TestDoctorFinds",
	"id-taken":              "TestExplainIDTaken",
	"no-ready-endpoints":    "TestExplainNoReadyEndpoints",

	"cluster-unreachable": "TestExplainStoppedImporter",
	"broker-unreachable":  "TestExplainStoppedExporterAndBroker",
	"not-published":       "TestExplainStoppedExporterAndBroker",
	"waiting-for-broker":  "TestExplainStoppedExporterAndBroker",

	"type-conflict":      "TestExplainConflicts",
	"port-conflict":      "TestExplainConflicts",
	"ip-family-conflict": "TestExplainIPFamilies",
	"property-conflict":  "TestExplainConflicts",

	"no-clusterset-ip-left":  "TestExplainNFTables",
	"no-clusterset-ip":       "TestExplainStoppedExporterAndBroker",
	"clusterset-ip-not-used": "TestExplainStoppedExporterAndBroker",

	"namespace-missing":       "TestExplainNamespaceMissing",
	"namespace-reserved":      "TestDoctorFinds",
	"import-missing":          "TestExplainStoppedImporter",
	"import-foreign":          "TestExplainForeignImport",
	"import-not-ready":        "TestExplainStoppedImporter",
	"ip-family-not-supported": "TestExplainIPFamilies",
	"stale-endpoints-kept":    "TestExplainStoppedExporterAndBroker",
	"stale-endpoints-dropped": "TestExplainStoppedExporterAndBroker",
	"addresses-refused":       "TestExplainAddressesRefused",
	"endpoints-behind":        "TestExplainStoppedImporter",

	"derived-service-foreign": "TestExplainDerivedServiceForeign",
	"derived-service-missing": "TestExplainStoppedExporterAndBroker",
	"derived-service-refused": "TestExplainDerivedServiceRefused",
	"proxy-not-ready":         "TestExplainNFTables",
	"proxy-behind":            "TestExplainProxy",
	"proxy-cut-off":           "TestExplainProxy",
	"proxy-damaged":           "TestExplainProxy",
	"proxy-refused":           "TestExplainProxy",

	"dns-no-answer":     "TestExplainDNS",
	"dns-differs":       "TestExplainDNS",
	"dns-silent":        "TestExplainDNS",
	"dns-not-forwarded": "TestDoctorFinds",

	"api-server":           "TestDoctorFinds",
	"permissions":          "TestStatusWithoutTheSecret",
	"crds":                 "TestDoctorFinds",
	"membership":           "TestStatusWhereThereIsNothing",
	"broker":               "TestDoctorFinds",
	"broker-permissions":   "TestDoctorFinds",
	"broker-fairness":      "TestDoctorFinds",
	"registration":         "TestDoctorFinds",
	"clocks":               "TestDoctorClocks",
	"heartbeat":            "TestDoctorFinds",
	"other-members":        "TestDoctorFinds",
	"agent":                "TestDoctorFinds",
	"agent-versions":       "TestDoctorFinds",
	"grants":               "TestDoctorFinds",
	"exports":              "TestTranscript",
	"dns-server":           "TestDoctorFinds",
	"dns-forward":          "TestDoctorFinds",
	"dns-answer":           "TestDoctorFinds",
	"address-ranges":       "TestDoctorFinds",
	"clusterset-ip-ranges": "TestDoctorFinds",
	"clusterset-ip-pool":   "TestExplainNFTables",
	"data-plane":           "TestExplainNFTables",
	"beacons":              "TestDoctorFinds",
	"remote-pod":           "TestDoctorFinds",
}

// seen are the codes that the commands of each test have printed.
var (
	seenMu sync.Mutex
	seen   = map[string]map[string]bool{}
)

// printedCode matches a finding of explain, and a check of doctor that warns or fails.
var printedCode = regexp.MustCompile(`(?m)^(?:FAIL|WARN|NOTE) {1,2}([a-z-]+)`)

// recordCodes records the codes in the output of a command, text or JSON.
func recordCodes(t testing.TB, output string) {
	var codes []string
	for _, m := range printedCode.FindAllStringSubmatch(output, -1) {
		codes = append(codes, m[1])
	}
	var report struct {
		Findings []struct{ Code string }
		Results  []struct{ Code, Status string }
	}
	if json.Unmarshal([]byte(output), &report) == nil {
		for _, f := range report.Findings {
			codes = append(codes, f.Code)
		}
		for _, r := range report.Results {
			if r.Status == string(doctor.Warn) || r.Status == string(doctor.Fail) {
				codes = append(codes, r.Code)
			}
		}
	}
	seenMu.Lock()
	defer seenMu.Unlock()
	test := topTest(t)
	if seen[test] == nil {
		seen[test] = map[string]bool{}
	}
	for _, code := range codes {
		seen[test][code] = true
	}
}

func topTest(t testing.TB) string {
	name, _, _ := strings.Cut(t.Name(), "/")
	return name
}

// checkShown fails a test that has not seen the codes it is named for in shownBy.
func checkShown(t testing.TB) {
	if t.Failed() || strings.Contains(flag.Lookup("test.run").Value.String(), "/") {
		return // it did not run to its end
	}
	seenMu.Lock()
	defer seenMu.Unlock()
	for code, test := range shownBy {
		if test == topTest(t) && !seen[test][code] {
			t.Errorf("no command of the test printed %s: shownBy names it for that", code)
		}
	}
}

// Every code of explain and doctor is produced by a test of this package.
func TestEveryCodeIsShown(t *testing.T) {
	codes := map[string]bool{}
	for _, p := range explain.Problems {
		codes[p.Code] = true
	}
	for _, c := range doctor.Checks {
		codes[c.Code] = true
	}
	for _, code := range slices.Sorted(maps.Keys(codes)) {
		if shownBy[code] == "" {
			t.Errorf("no test shows %s", code)
		}
	}
	tests := testsHere(t)
	for code, test := range shownBy {
		if !codes[code] {
			t.Errorf("there is no code %s", code)
		}
		if !slices.Contains(tests, test) {
			t.Errorf("%s: there is no test %s in this package", code, test)
		}
	}
}

// testsHere returns the names of the functions in the test files of this package.
func testsHere(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names
}
