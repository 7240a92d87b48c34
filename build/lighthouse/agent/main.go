// Command agent runs the controllers of Submariner Lighthouse outside a cluster. Lighthouse's own
// command does not accept a kubeconfig: it parses its arguments a second time as flags of klog,
// which has no such flag, and exits. It also listens on a fixed port, so that two agents cannot run
// on one machine. What it runs is the same: the packages of the module, with the defaults of
// `subctl join`.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/kelseyhightower/envconfig"
	"github.com/submariner-io/admiral/pkg/configmap"
	"github.com/submariner-io/admiral/pkg/global"
	"github.com/submariner-io/admiral/pkg/log/kzerolog"
	"github.com/submariner-io/admiral/pkg/names"
	"github.com/submariner-io/admiral/pkg/resource"
	"github.com/submariner-io/admiral/pkg/syncer/broker"
	"github.com/submariner-io/admiral/pkg/util"
	"github.com/submariner-io/lighthouse/pkg/agent/controller"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "lighthouse-agent:", err)
		stop()
		os.Exit(1)
	}
}

// run runs the agent that the environment describes, until ctx ends or, with
// SUBMARINER_UNINSTALL=true, until it has cleaned up.
func run(ctx context.Context) error {
	kzerolog.InitK8sLogging()
	var spec controller.AgentSpecification
	if err := envconfig.Process("submariner", &spec); err != nil {
		return fmt.Errorf("read the environment: %w", err)
	}
	if err := mcsv1alpha1.Install(scheme.Scheme); err != nil {
		return err
	}
	agent, err := newController(ctx, &spec)
	if err != nil {
		return err
	}
	if spec.Uninstall {
		return agent.Cleanup(ctx)
	}
	if err := agent.Start(ctx.Done()); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func newController(ctx context.Context, spec *controller.AgentSpecification) (*controller.Controller, error) {
	file := os.Getenv("KUBECONFIG")
	if file == "" {
		return nil, errors.New("set KUBECONFIG to the kubeconfig of the agent's cluster")
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return nil, err
	}
	if err := readSettings(ctx, config, spec.Namespace); err != nil {
		return nil, err
	}
	mapper, err := util.BuildRestMapper(config)
	if err != nil {
		return nil, fmt.Errorf("read the kinds of %s: %w", config.Host, err)
	}
	local, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return controller.New(spec,
		broker.SyncerConfig{LocalRestConfig: config, LocalClient: local, RestMapper: mapper, Scheme: scheme.Scheme},
		controller.AgentConfig{
			ServiceImportCounterName: "submariner_service_import", ServiceExportCounterName: "submariner_service_export",
			SupportedIPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
		})
}

// readSettings reads the ConfigMaps with the settings of Submariner, and sets how many requests the
// agent sends. Its requests to the broker are limited by the same settings. The ConfigMaps are read
// once: Lighthouse's own command ends itself when they change.
func readSettings(ctx context.Context, config *rest.Config, namespace string) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	var maps []*corev1.ConfigMap
	for _, name := range []string{configmap.Global, names.ServiceDiscoveryComponent} {
		settings, err := configmap.Get(ctx, resource.ForConfigMap(client, namespace), name)
		if err != nil {
			return err
		}
		maps = append(maps, settings)
	}
	global.Init(maps...)
	config.QPS, config.Burst = float32(global.Get(global.K8sClientQPS, 0)), global.Get(global.K8sClientBurst, 0)
	return nil
}
