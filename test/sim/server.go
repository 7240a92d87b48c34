package sim

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/seamark-dev/seamark/internal/agent/apply"
)

// server models an API server: objects with resource versions and optimistic concurrency, a log of
// changes per kind for watches, and as much of Services as derived Services need. Stored objects
// are never changed, so that views and snapshots share them.
type server struct {
	name string
	// skew is how far this cluster's clock is off.
	skew    time.Duration
	version int64
	uids    int
	// epoch counts how often the server was restored from a backup. Watches of an earlier epoch
	// resume from a version that the server does not have; they stay silent.
	epoch  int
	stores map[reflect.Type]*store
	// ranges are those of ClusterIPs, by family; allocated counts the addresses given out.
	ranges    map[corev1.IPFamily]netip.Addr
	allocated int
	// orphans is true if an object was deleted since collectGarbage last found none.
	orphans bool
	// onWrite is called after each change, with the object as it is or, if it was deleted, was.
	onWrite  func(verb string, obj client.Object)
	backups  []backup
	detector *detector
}

type store struct {
	objects  map[types.NamespacedName]client.Object
	sorted   []types.NamespacedName // the keys of objects in order; nil if they must be sorted again
	log      []change               // all changes since the server exists
	watchers []*informer
	cached   map[cacheKey]*cached // the objects as caches have them
}

type change struct {
	obj     client.Object
	deleted bool
	at      time.Time
}

// maxStaleness is how old a list may be that an API server answers from its cache.
const maxStaleness = 2 * time.Second

// backup is a state to which a server can be set back: how many changes of each log it has.
type backup struct {
	at        time.Time
	version   int64
	positions map[*store]int
}

func newServer(name string, onWrite func(string, client.Object)) *server {
	return &server{name: name, stores: map[reflect.Type]*store{}, onWrite: onWrite, version: 100}
}

func (s *server) store(t reflect.Type) *store {
	st := s.stores[t]
	if st == nil {
		if kinds[t] == nil {
			panic(fmt.Sprintf("kind %s is not modelled: add it to kinds.go", t))
		}
		st = &store{objects: map[types.NamespacedName]client.Object{}, cached: map[cacheKey]*cached{}}
		s.stores[t] = st
	}
	return st
}

func (s *server) now() metav1.Time {
	return metav1.NewTime(time.Now().Add(s.skew).Truncate(time.Second))
}

func resource(obj client.Object) schema.GroupResource {
	return schema.GroupResource{Resource: kindOf(obj).name}
}

// get returns the stored object, which must not be changed, or nil.
func (s *server) get(t reflect.Type, key types.NamespacedName) client.Object {
	return s.store(t).objects[key]
}

// keys returns the keys of all objects in order.
func (st *store) keys() []types.NamespacedName {
	if st.sorted == nil {
		st.sorted = sortedKeys(st.objects)
	}
	return st.sorted
}

// each calls f for all objects of a type in a fixed order.
func each[P client.Object](s *server, f func(P)) {
	st := s.store(reflect.TypeFor[P]())
	for _, key := range st.keys() {
		if obj, ok := st.objects[key].(P); ok {
			f(obj)
		}
	}
}

// lookup returns an object of a type, or the zero value.
func lookupObject[P client.Object](s *server, namespace, name string) client.Object {
	return s.get(reflect.TypeFor[P](), types.NamespacedName{Namespace: namespace, Name: name})
}

func lookup[P client.Object](s *server, namespace, name string) P {
	obj, _ := s.get(reflect.TypeFor[P](), types.NamespacedName{Namespace: namespace, Name: name}).(P)
	return obj
}

func (s *server) commit(verb string, st *store, obj client.Object, deleted bool) {
	s.version++
	obj.SetResourceVersion(strconv.FormatInt(s.version, 10))
	stored, ok := obj.DeepCopyObject().(client.Object)
	if !ok {
		panic("not an object")
	}
	s.detector.watch(stored)
	key := client.ObjectKeyFromObject(stored)
	if _, existed := st.objects[key]; !existed || deleted {
		st.sorted = nil
	}
	if deleted {
		delete(st.objects, key)
		s.orphans = true
	} else {
		st.objects[key] = stored
	}
	st.log = append(st.log, change{stored, deleted, time.Now()})
	for _, w := range st.watchers {
		w.wake()
	}
	if s.onWrite != nil {
		s.onWrite(verb, stored)
	}
}

func (s *server) create(obj client.Object) error {
	st := s.store(reflect.TypeOf(obj))
	if _, exists := st.objects[client.ObjectKeyFromObject(obj)]; exists {
		return apierrors.NewAlreadyExists(resource(obj), obj.GetName())
	}
	if svc, ok := obj.(*corev1.Service); ok {
		if err := s.allocate(svc); err != nil {
			return err
		}
	}
	s.uids++
	obj.SetUID(types.UID(s.name + "-" + strconv.Itoa(s.uids)))
	obj.SetCreationTimestamp(s.now())
	obj.SetGeneration(1)
	s.commit("create", st, obj, false)
	return nil
}

// update replaces the object, or with status its status only.
func (s *server) update(obj client.Object, status bool) error {
	k, st := kindOf(obj), s.store(reflect.TypeOf(obj))
	current, exists := st.objects[client.ObjectKeyFromObject(obj)]
	if !exists {
		return apierrors.NewNotFound(resource(obj), obj.GetName())
	}
	if version := obj.GetResourceVersion(); version != "" && version != current.GetResourceVersion() ||
		obj.GetUID() != "" && obj.GetUID() != current.GetUID() {
		return apierrors.NewConflict(resource(obj), obj.GetName(), errors.New("the object has been modified"))
	}
	if status {
		wanted := k.shallow(obj)
		k.set(obj, current)
		k.keepStatus(obj, wanted)
	} else {
		obj.SetUID(current.GetUID())
		obj.SetCreationTimestamp(current.GetCreationTimestamp())
		obj.SetGeneration(current.GetGeneration())
		obj.SetResourceVersion(current.GetResourceVersion())
		if k.keepStatus != nil {
			k.keepStatus(obj, current)
		}
		if svc, ok := obj.(*corev1.Service); ok {
			if err := s.allocate(svc); err != nil {
				return err
			}
		}
	}
	if _, lease := obj.(*coordinationv1.Lease); lease { // each renewal is a change, and there are many
		s.commit("update", st, obj, false)
		return nil
	}
	verb := "update"
	switch same := equality.Semantic.DeepEqual(k.withoutMeta(current), k.withoutMeta(obj)); {
	case same && (status || apply.SameMetadata(current, obj) && apply.SameOwners(current.GetOwnerReferences(), obj.GetOwnerReferences())):
		return nil
	case status:
		verb = "update status of"
	case !same:
		obj.SetGeneration(current.GetGeneration() + 1)
	}
	s.commit(verb, st, obj, false)
	return nil
}

func (s *server) remove(obj client.Object, preconditions *metav1.Preconditions) error {
	st := s.store(reflect.TypeOf(obj))
	current, exists := st.objects[client.ObjectKeyFromObject(obj)]
	if !exists {
		return apierrors.NewNotFound(resource(obj), obj.GetName())
	}
	if p := preconditions; p != nil && (p.UID != nil && *p.UID != current.GetUID() ||
		p.ResourceVersion != nil && *p.ResourceVersion != current.GetResourceVersion()) {
		return apierrors.NewConflict(resource(obj), obj.GetName(), errors.New("the precondition does not hold"))
	}
	s.commit("delete", st, kindOf(current).shallow(current), true)
	return nil
}

// allocate gives a Service the ClusterIPs of its families. Addresses are never used twice, so that
// a Service that was created again has another one unless it asks for its former.
func (s *server) allocate(svc *corev1.Service) error {
	if svc.Spec.ClusterIP == corev1.ClusterIPNone {
		svc.Spec.ClusterIPs = []string{corev1.ClusterIPNone}
		return nil
	}
	ips := svc.Spec.ClusterIPs[:min(len(svc.Spec.ClusterIPs), len(svc.Spec.IPFamilies))]
	for _, ip := range ips {
		var taken error
		each(s, func(other *corev1.Service) {
			if other.Name != svc.Name && slices.Contains(other.Spec.ClusterIPs, ip) {
				taken = apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, svc.Name, nil)
			}
		})
		if taken != nil {
			return taken
		}
	}
	for _, family := range svc.Spec.IPFamilies[len(ips):] {
		s.allocated++
		base, bits := s.ranges[family].AsSlice(), s.allocated
		base[len(base)-1], base[len(base)-2] = byte(bits), byte(bits>>8)
		addr, _ := netip.AddrFromSlice(base)
		ips = append(slices.Clone(ips), addr.String())
	}
	svc.Spec.ClusterIPs = ips
	if len(ips) > 0 {
		svc.Spec.ClusterIP = ips[0]
	}
	return nil
}

// collectGarbage deletes one object whose owner does not exist any more.
func (s *server) collectGarbage() (found bool) {
	if !s.orphans {
		return false
	}
	alive := map[types.UID]bool{}
	var orphan client.Object
	for _, st := range s.stores {
		for _, obj := range st.objects {
			alive[obj.GetUID()] = true
		}
	}
	check := func(obj client.Object) {
		for _, owner := range obj.GetOwnerReferences() {
			if !alive[owner.UID] && orphan == nil {
				orphan = obj
			}
		}
	}
	for _, t := range ownedTypes {
		st := s.store(t)
		for _, key := range st.keys() {
			check(st.objects[key])
		}
	}
	s.orphans = orphan != nil
	return s.orphans && s.remove(orphan, nil) == nil
}

// backUp stores the state, to be restored later.
func (s *server) backUp() {
	b := backup{at: time.Now(), version: s.version, positions: make(map[*store]int, len(s.stores))}
	for _, st := range s.stores {
		b.positions[st] = len(st.log)
	}
	s.backups = append(s.backups, b)
}

// restore sets the server back to a backup. Watches stay silent until they start over.
func (s *server) restore(b backup) {
	s.epoch++
	s.version = b.version
	for _, st := range s.stores {
		st.log = slices.Clip(st.log[:b.positions[st]])
		st.objects, st.sorted = st.replay(len(st.log)), nil
	}
	s.backups = slices.DeleteFunc(s.backups, func(other backup) bool { return other.version > b.version })
}

// stateAt returns the objects of a kind, with their keys in order, as they were before the last n
// changes, but not earlier than maxStaleness ago and not before the first seen changes.
func (st *store) stateAt(n, seen int) (state map[types.NamespacedName]client.Object, keys []types.NamespacedName, position int) {
	position = len(st.log)
	for ; n > 0 && position > seen && time.Since(st.log[position-1].at) < maxStaleness; n-- {
		position--
	}
	if position == len(st.log) {
		return st.objects, st.keys(), position
	}
	state = st.replay(position)
	return state, sortedKeys(state), position
}

// replay returns the objects of a kind as they were after some changes.
func (st *store) replay(changes int) map[types.NamespacedName]client.Object {
	state := map[types.NamespacedName]client.Object{}
	for _, c := range st.log[:changes] {
		key := client.ObjectKeyFromObject(c.obj)
		if c.deleted {
			delete(state, key)
		} else {
			state[key] = c.obj
		}
	}
	return state
}
