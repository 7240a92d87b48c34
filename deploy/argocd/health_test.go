// Package argocd_test runs the health scripts as Argo CD does: with the object as the global obj.
package argocd_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write argocd-cm.yaml from the scripts")

// health runs a script and returns the status and the message.
func health(t *testing.T, script, object string) (status, message string) {
	t.Helper()
	text, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	var obj map[string]any
	if err := yaml.Unmarshal([]byte(object), &obj); err != nil {
		t.Fatal(err)
	}
	// Argo CD opens these libraries only.
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for _, library := range []struct {
		name string
		open lua.LGFunction
	}{{lua.LoadLibName, lua.OpenPackage}, {lua.BaseLibName, lua.OpenBase}, {lua.TabLibName, lua.OpenTable}} {
		state.Push(state.NewFunction(library.open))
		state.Push(lua.LString(library.name))
		if err := state.PCall(1, 0, nil); err != nil {
			t.Fatal(err)
		}
	}
	state.SetGlobal("obj", valueOf(state, obj))
	if err := state.DoString(string(text)); err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	result, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("%s returns a %s", script, state.Get(-1).Type())
	}
	return result.RawGetString("status").String(), result.RawGetString("message").String()
}

// valueOf returns a value of a manifest as Lua sees it.
func valueOf(state *lua.LState, value any) lua.LValue {
	switch typed := value.(type) {
	case map[string]any:
		table := state.NewTable()
		for key, field := range typed {
			table.RawSetString(key, valueOf(state, field))
		}
		return table
	case []any:
		table := state.NewTable()
		for _, element := range typed {
			table.Append(valueOf(state, element))
		}
		return table
	case string:
		return lua.LString(typed)
	case float64:
		return lua.LNumber(typed)
	case bool:
		return lua.LBool(typed)
	}
	return lua.LNil
}

func TestHealth(t *testing.T) {
	const export, imported = "multicluster.x-k8s.io_ServiceExport.lua", "multicluster.x-k8s.io_ServiceImport.lua"
	const cluster, set = "seamark.dev_Cluster.lua", "seamark.dev_ClusterSet.lua"
	conditions := func(list ...string) string {
		return "metadata: {generation: 2}\nstatus:\n  conditions:\n  - " + strings.Join(list, "\n  - ")
	}
	const (
		ready    = `{type: Ready, status: "True", reason: Exported, message: the service is published, observedGeneration: 2}`
		older    = `{type: Ready, status: "True", reason: Exported, message: the service is published, observedGeneration: 1}`
		waiting  = `{type: Ready, status: "False", reason: WaitingForBroker, message: waiting for the broker, observedGeneration: 2}`
		failed   = `{type: Ready, status: "False", reason: Failed, message: "not exported: a Service of type ExternalName", observedGeneration: 2}`
		stalled  = `{type: Stalled, status: "True", reason: InvalidServiceType, message: a Service of type ExternalName, observedGeneration: 2}`
		conflict = `{type: Conflict, status: "True", reason: PortConflict, message: ports differ, observedGeneration: 2}`
		agreed   = `{type: Conflict, status: "False", reason: NoConflicts, message: none, observedGeneration: 2}`
		usable   = `{type: Ready, status: "True", reason: Ready, message: the service is imported}`
		stale    = `{type: StaleEndpointsKept, status: "True", reason: NoOtherCluster, message: east is stale}`
		refused  = `{type: Ready, status: "False", reason: DerivedServiceRefused, message: timeout}`
		foreign  = `{type: Ready, status: "False", reason: DerivedServiceForeign, message: there is already a Service}`
		lasting  = `{type: Stalled, status: "True", reason: DerivedServiceForeign, message: there is already a Service}`
		pending  = `{type: Ready, status: "False", reason: Pending, message: waiting for its Service}`
	)
	for _, test := range []struct{ script, object, status, message string }{
		{export, "metadata: {generation: 1}", "Progressing", "does it run"},
		{export, "metadata: {generation: 1}\nstatus: {}", "Progressing", "does it run"},
		{export, conditions(waiting), "Progressing", "waiting for the broker"},
		{export, conditions(failed, stalled), "Degraded", "a Service of type ExternalName"},
		{export, conditions(ready, agreed), "Healthy", "the service is published"},
		{export, conditions(conflict, ready), "Healthy", "the service is published; ports differ"},
		{export, conditions(older), "Progressing", "has not been seen yet"},
		{imported, "metadata: {}", "Progressing", "waiting for seamark-agent"},
		{imported, conditions(pending), "Progressing", "waiting for its Service"},
		{imported, "status: {conditions: []}", "Progressing", "waiting for seamark-agent"},
		{imported, conditions(refused), "Progressing", "timeout"},
		{imported, conditions(foreign, lasting), "Degraded", "there is already a Service"},
		{imported, conditions(usable), "Healthy", "the service is imported"},
		{imported, conditions(usable, stale), "Healthy", "the service is imported; east is stale"},
		{cluster, "metadata: {}", "Progressing", "has not connected yet"},
		{cluster, "status: {dataPlane: service}", "Progressing", "has not connected yet"},
		{cluster, "status: {agentVersion: v1.2.3}", "Healthy", "joined, with agent v1.2.3"},
		{set, "metadata: {}", "Healthy", "settings"},
	} {
		status, message := health(t, test.script, test.object)
		if status != test.status || !strings.Contains(message, test.message) {
			t.Errorf("%s of\n%s\nis %s: %s\nwant %s: …%s…", test.script, test.object, status, message, test.status, test.message)
		}
	}
}

// argocd-cm.yaml has the scripts as Argo CD reads them.
func TestConfigMap(t *testing.T) {
	scripts, err := filepath.Glob("*.lua")
	if err != nil || len(scripts) != 4 {
		t.Fatalf("%v (%v)", scripts, err)
	}
	want := map[string]string{}
	var text strings.Builder
	text.WriteString("# The health of Seamark's kinds for Argo CD: merge it into its ConfigMap. The scripts are those beside this file.\n" +
		"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: argocd-cm\n  namespace: argocd\n  labels:\n" +
		"    app.kubernetes.io/part-of: argocd\ndata:\n")
	for _, script := range scripts {
		body, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		key := "resource.customizations.health." + strings.TrimSuffix(script, ".lua")
		want[key] = string(body)
		fmt.Fprintf(&text, "  %s: |\n", key)
		for line := range strings.Lines(string(body)) {
			fmt.Fprintf(&text, "    %s", line)
		}
	}
	if *update {
		if err := os.WriteFile("argocd-cm.yaml", []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	written, err := os.ReadFile("argocd-cm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var config corev1.ConfigMap
	if err := yaml.UnmarshalStrict(written, &config); err != nil {
		t.Fatal(err)
	}
	for key, script := range want {
		if config.Data[key] != script {
			t.Errorf("%s differs from the script: go test ./deploy/argocd -update", key)
		}
	}
}
