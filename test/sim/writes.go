package sim

import (
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/agent/apply"
	"github.com/seamark-dev/seamark/internal/objects"
)

// objectKey identifies an object of a server.
type objectKey struct {
	typ  reflect.Type
	name types.NamespacedName
}

func objectKeyOf(obj client.Object) objectKey {
	return objectKey{reflect.TypeOf(obj), client.ObjectKeyFromObject(obj)}
}

// ownWrite is the last write of a process to an object.
type ownWrite struct {
	version int64
	epoch   int
	at      time.Time
}

// recordWrite remembers a write that succeeded, and that the agent knows of.
func (c *apiClient) recordWrite(obj client.Object) {
	if c.view != nil && obj.GetNamespace() != "" { // tasks and the identity do not wait for caches
		c.view.written[objectKeyOf(obj)] = ownWrite{objects.ResourceVersion(obj), c.server.epoch, time.Now()}
	}
}

// checkRepeated checks that a write that failed because the object changed was not decided on a
// state from before the agent's own last write: it waits until its cache has that, but not for
// longer than apply.CacheTimeout.
func (c *apiClient) checkRepeated(verb string, obj client.Object, err error) {
	if c.view == nil || !objects.IsWriteConflict(err) {
		return
	}
	key := objectKeyOf(obj)
	own, wrote := c.view.written[key]
	current := c.server.get(key.typ, key.name)
	if !wrote || current == nil || objects.ResourceVersion(current) != own.version || own.epoch != c.server.epoch ||
		time.Since(own.at) >= apply.CacheTimeout {
		return
	}
	if seen, epoch := c.view.versionOf(key); epoch == own.epoch && seen < own.version {
		c.agent.member.world.fail(ruleRepeat, "%s tries to %s %s %s before its cache has its own last write", c.agent, verb,
			kindOf(obj).name, obj.GetName())
	}
}

// checkUnchanged checks that an object that an agent deleted is the one that its cache has.
func (c *apiClient) checkUnchanged(deleted client.Object) {
	if c.view == nil {
		return
	}
	if seen, epoch := c.view.versionOf(objectKeyOf(deleted)); epoch == c.server.epoch && seen != objects.ResourceVersion(deleted) {
		c.agent.member.world.fail(ruleUnseen, "%s deleted %s %s, which changed since its cache had it", c.agent, kindOf(deleted).name,
			deleted.GetName())
	}
}

// versionOf returns the resource version of an object in a cache, 0 if it is not there, and the
// epoch of the server that the cache is of.
func (v *view) versionOf(key objectKey) (version int64, epoch int) {
	i := v.informer(key.typ)
	if at, known := i.find(key.name); known {
		version = objects.ResourceVersion(i.objects[at].obj)
	}
	return version, i.epoch
}
