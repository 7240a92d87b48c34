package sim

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var (
	errStopped     = errors.New("the agent is stopped")
	errUnreachable = errors.New("connection refused")
)

// apiClient is an agent's client of one API server. It reads from the view, or from the server if
// it has none.
type apiClient struct {
	client.Client // nil: what is not modelled panics

	agent  *agentProcess
	server *server
	view   *view
}

// fail returns the error of a request that does not reach the server.
func (c *apiClient) fail() error {
	switch {
	case c.agent.stopped:
		return errStopped
	case c.server == c.agent.member.world.broker && c.agent.member.cutOff:
		return errUnreachable
	}
	return nil
}

// write makes one write. The agent may crash before or after it, or lose the answer.
func (c *apiClient) write(verb string, obj client.Object, f func() error) error {
	defer c.agent.inOrder()()
	if err := c.fail(); err != nil {
		return err
	}
	a := c.agent
	if a.crashIn > 0 {
		if a.crashIn--; a.crashIn == 0 {
			a.member.world.logf("%s crashes before it can %s %s %s", a, verb, kindOf(obj).name, obj.GetName())
			a.stop()
			return errStopped
		}
	}
	outcome := fine
	if _, lease := obj.(*coordinationv1.Lease); !lease && a.member.failing > 0 {
		a.member.failing--
		outcome = writeOutcome(a.member.world.rng.IntN(3))
	}
	if outcome == refused {
		return apierrors.NewInternalError(errors.New("etcdserver: request timed out"))
	}
	err := f()
	switch {
	case err != nil:
		c.checkRepeated(verb, obj, err)
	case outcome == answerLost:
		return apierrors.NewTimeoutError("the answer is lost", 1)
	default:
		c.recordWrite(obj)
	}
	return err
}

type writeOutcome int

const (
	fine writeOutcome = iota
	refused
	answerLost
)

// Get implements client.Reader.
func (c *apiClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	defer c.agent.inOrder()()
	if c.view != nil {
		return c.view.Get(ctx, key, obj, opts...)
	}
	if err := c.fail(); err != nil {
		return err
	}
	current := c.server.get(reflect.TypeOf(obj), key)
	if current == nil {
		return apierrors.NewNotFound(resource(obj), key.Name)
	}
	kindOf(obj).set(obj, current)
	return nil
}

// List implements client.Reader.
func (c *apiClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	defer c.agent.inOrder()()
	if c.view != nil {
		return c.view.List(ctx, list, opts...)
	}
	if err := c.fail(); err != nil {
		return err
	}
	k := lists[reflect.TypeOf(list)]
	if k == nil {
		panic(fmt.Sprintf("lists of %T are not modelled", list))
	}
	var items []client.Object
	wanted := newSelector(opts)
	state := c.server.store(typesByKind[k])
	for _, key := range state.keys() {
		if obj := state.objects[key]; wanted.matches(obj, nil) {
			items = append(items, obj)
		}
	}
	k.fill(list, items)
	return nil
}

// Create implements client.Writer.
func (c *apiClient) Create(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
	return c.write("create", obj, func() error { return c.server.create(obj) })
}

// Update implements client.Writer.
func (c *apiClient) Update(_ context.Context, obj client.Object, _ ...client.UpdateOption) error {
	return c.write("update", obj, func() error { return c.server.update(obj, false) })
}

// Delete implements client.Writer.
func (c *apiClient) Delete(_ context.Context, obj client.Object, opts ...client.DeleteOption) error {
	var o client.DeleteOptions
	o.ApplyOptions(opts)
	return c.write("delete", obj, func() error {
		current := c.server.get(reflect.TypeOf(obj), client.ObjectKeyFromObject(obj))
		err := c.server.remove(obj, o.Preconditions)
		if err == nil {
			c.checkUnchanged(current)
		}
		return err
	})
}

// Patch implements client.Writer. Agents patch only the lease of a copy of their cluster, and there
// are no copies here.
func (c *apiClient) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	c.agent.member.world.fail(ruleConverge, "%s takes itself for a copy of its cluster", c.agent)
	return errUnreachable
}

// Status implements client.StatusClient.
func (c *apiClient) Status() client.SubResourceWriter { return &statusClient{client: c} }

type statusClient struct {
	client.SubResourceWriter // nil: what is not modelled panics

	client *apiClient
}

// Update implements client.SubResourceWriter.
func (s *statusClient) Update(_ context.Context, obj client.Object, _ ...client.SubResourceUpdateOption) error {
	return s.client.write("update status of", obj, func() error { return s.client.server.update(obj, true) })
}

// Patch implements client.SubResourceWriter.
func (s *statusClient) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	return s.client.write("patch status of", obj, func() error { return s.client.server.patchStatus(obj, patch) })
}
