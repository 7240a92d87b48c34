//go:build linux

package migration_test

import (
	"bytes"
	"embed"
	"fmt"
	"io"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/seamark-dev/seamark/internal/sandbox/image"
	"github.com/seamark-dev/seamark/internal/sandbox/kubeparts"
	"github.com/seamark-dev/seamark/test/e2e/testenv"
)

// The names under which Submariner's operator runs the images of Submariner.
const (
	repository = "submariner.example"
	version    = "0.24.0"

	operatorNamespace = "submariner-operator"
	brokerNamespace   = "submariner-k8s-broker"
)

//go:embed testdata/*.yaml
var manifests embed.FS

// manifest returns a file of testdata with values for its $NAMES, given as pairs.
func (s *suite) manifest(file string, pairs ...string) string {
	s.Helper()
	text, err := manifests.ReadFile("testdata/" + file)
	s.must(err)
	return strings.NewReplacer(pairs...).Replace(string(text))
}

func namespaceManifest(name string) string {
	return "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + name + "}\n"
}

// loadSubmariner loads the images of Submariner into all clusters: its operator and Lighthouse's
// agent as they are, built from their modules, and the program that stands in for Lighthouse's DNS
// server.
func (s *suite) loadSubmariner(programs string) {
	s.Helper()
	root, err := kubeparts.Root()
	s.must(err)
	cache, err := kubeparts.CacheDir()
	s.must(err)
	pack := func(name, program string) (image.Content, error) {
		recipe := image.Recipe{Repository: path.Join(repository, name), Entrypoint: []string{program}}
		return image.Package(recipe, version, filepath.Join(programs, program))
	}
	builder := image.Builder{Root: root, Version: version, Cache: filepath.Join(cache, "images")}
	compile := func(name, program string) (image.Content, error) {
		recipe := image.Recipe{Repository: path.Join(repository, name), Entrypoint: []string{path.Base(program)}, Programs: []string{program}}
		return builder.Compile(s.Context(), recipe, image.HostArchitecture())
	}
	for _, i := range []struct {
		name, program string
		content       func(name, program string) (image.Content, error)
	}{
		{"submariner-operator", kubeparts.SubmarinerOperator, pack},
		{"lighthouse-agent", kubeparts.SubmarinerAgent, pack},
		{"lighthouse-coredns", "test/e2e/lighthousedns", compile},
	} {
		content, err := i.content(i.name, i.program)
		s.must(err)
		made, err := content.Image()
		s.must(err)
		file := filepath.Join(s.TempDir(), i.name+".tar")
		s.must(image.WriteTar(file, path.Join(repository, i.name)+":"+version, made))
		_, err = s.Load(s.Context(), file, io.Discard)
		s.must(err)
	}
}

// printed returns what a program of Submariner's part prints.
func (s *suite) printed(program string, args ...string) string {
	s.Helper()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(s.Context(), program, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		s.Fatalf("%s: %v\n%s", program, err, stderr.String())
	}
	return string(out)
}

// installSubmariner does what `subctl deploy-broker` and `subctl join` do: Lighthouse's broker is
// on the first cluster, and all clusters join it. Then it waits until Lighthouse runs everywhere.
func (s *suite) installSubmariner() {
	s.Helper()
	programs, err := kubeparts.Lighthouse(s.Context(), s.Output())
	s.must(err)
	s.loadSubmariner(programs)
	accounts := s.printed(filepath.Join(programs, kubeparts.SubmarinerManifests))
	s.apply(s.broker, namespaceManifest(brokerNamespace))
	s.apply(s.broker, s.printed(filepath.Join(programs, kubeparts.SubmarinerManifests), "broker"))
	s.apply(s.broker, s.printed(filepath.Join(programs, "lighthouse-crds")))
	for _, cluster := range s.Clusters() {
		s.apply(cluster, namespaceManifest(operatorNamespace))
		s.apply(cluster, accounts)
		s.established(cluster, "submariners.submariner.io")
		s.joinSubmariner(cluster)
	}
	for _, cluster := range s.Clusters() {
		s.must(s.RolledOut(s.Context(), cluster, operatorNamespace, "deployment/submariner-operator"))
		s.established(cluster, "clusters.submariner.io")
		for _, other := range s.Status(s.Context()).Clusters {
			s.apply(cluster, s.manifest("cluster.yaml", "$ID", other.Name,
				"$PODS", strings.Join(other.PodCIDRs, ","), "$SERVICES", strings.Join(other.ServiceCIDR, ",")))
		}
		for _, name := range []string{"submariner-lighthouse-agent", "submariner-lighthouse-coredns"} {
			s.kubectl(cluster, "-n", operatorNamespace, "wait", "--for=create", "deployment/"+name, "--timeout=120s")
			s.must(s.RolledOut(s.Context(), cluster, operatorNamespace, "deployment/"+name))
		}
	}
}

// established waits until a CRD exists and is served.
func (s *suite) established(cluster, crd string) {
	s.Helper()
	s.kubectl(cluster, "wait", "--for=create", "crd/"+crd, "--timeout=120s")
	s.kubectl(cluster, "wait", "--for=condition=Established", "crd/"+crd, "--timeout=60s")
}

// joinSubmariner creates the account of a cluster on Lighthouse's broker, and the operator and its
// resource in the cluster.
func (s *suite) joinSubmariner(cluster string) {
	s.Helper()
	s.apply(s.broker, s.manifest("broker.yaml", "$ID", cluster))
	secret := func(field string) (value string) {
		s.eventually("the token of "+cluster+" on Lighthouse's broker", func() error {
			value = s.kubectl(s.broker, "-n", brokerNamespace, "get", "secret", "cluster-"+cluster+"-token", "-o", "jsonpath={.data."+field+"}")
			if value == "" {
				return fmt.Errorf("it has no %s yet", field)
			}
			return nil
		})
		return value
	}
	server, err := s.Server(s.broker)
	s.must(err)
	own := s.clusterStatus(cluster)
	s.apply(cluster, s.manifest("operator.yaml", "$REPOSITORY", repository, "$VERSION", version, "$ID", cluster,
		"$PODS", strings.Join(own.PodCIDRs, ","), "$SERVICES", strings.Join(own.ServiceCIDR, ","),
		"$SERVER", strings.TrimPrefix(server, "https://"), "$TOKEN", secret("token"), "$CA", secret(`ca\.crt`)))
}

// exportServices runs the services of this test and exports them by Lighthouse: web has a ClusterIP
// in the first and the second cluster, db is headless in the second and the third. So each cluster
// exports, and each uses a service of others.
func (s *suite) exportServices() {
	s.Helper()
	clusters := s.Clusters()
	for _, cluster := range clusters {
		s.apply(cluster, testenv.Client)
	}
	for _, cluster := range clusters[:2] {
		s.apply(cluster, testenv.Web(1))
		s.apply(cluster, s.manifest("export.yaml", "$NAME", "web"))
	}
	for _, cluster := range clusters[1:] {
		s.apply(cluster, s.manifest("db.yaml"))
		s.apply(cluster, s.manifest("export.yaml", "$NAME", "db"))
	}
	for _, cluster := range clusters {
		s.kubectl(cluster, "-n", "shop", "wait", "--for=condition=Ready", "pod", "--all", "--timeout=120s")
	}
	for _, cluster := range clusters {
		s.eventually("Lighthouse serves "+cluster, func() error {
			for name, want := range map[string]int{webName: 1, dbName: 2} {
				if answers, err := s.Lookup(s.Context(), cluster, "shop", "client", name, "A"); err != nil || len(answers) != want {
					return fmt.Errorf("%s has the addresses %v (%w), want %d", name, answers, err, want)
				}
			}
			return nil
		})
	}
}
