package agent

import (
	"context"
	"fmt"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/install/crds"
)

// keepRetry is when a failed attempt to restore the CRDs is repeated.
const keepRetry = time.Second

// startKeepingKinds starts keepKinds and returns what stops it. It is no task of the manager, which
// starts tasks when all caches have synced: an agent that starts while a kind is missing would wait
// for it for ever.
func (a *agent) startKeepingKinds(ctx context.Context) (stop func(), err error) {
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	c, err := client.New(a.Local, client.Options{Scheme: scheme, Mapper: newMapper()})
	if err != nil {
		return nil, fmt.Errorf("connect to this cluster: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { a.keepKinds(ctx, c) })
	return func() { cancel(); running.Wait() }, nil
}

// keepKinds restores the kinds of the MCS API whenever the API server does not serve them: at each
// of its starts Submariner's operator replaces their CRDs by its own, which lack the version that
// Seamark uses. Until they are restored the caches keep what they have, so nothing is withdrawn.
//
// A request that fails says that a kind is missing. A watch of the CRDs themselves would need more
// permissions, and would report nothing else of use.
func (a *agent) keepKinds(ctx context.Context, c client.Client) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.kindLost:
		}
		for !a.restoreKinds(ctx, c) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(keepRetry):
			}
		}
	}
}

// reportKindLost makes keepKinds look at the CRDs.
func (a *agent) reportKindLost() {
	select {
	case a.kindLost <- struct{}{}:
	default:
	}
}

// restoreKinds reports whether the CRDs are as they should be.
func (a *agent) restoreKinds(ctx context.Context, c client.Client) bool {
	restored, err := crds.Restore(ctx, c)
	if err != nil {
		a.Log.Error(err, "cannot restore the kinds of the MCS API: exports and imports do not follow changes until they are served again")
		return false
	}
	if len(restored) > 0 {
		a.Log.Info("restored the version of the MCS API that Submariner's operator had removed", "crds", restored)
	}
	return true
}
