// Package memapi is a small Kubernetes API server in memory: as much of one as seamark-agent needs
// of its own cluster. It is an http.RoundTripper, so that an agent uses it without a socket, and a
// thousand of them fit into one process. It has resource versions, optimistic concurrency, watches
// (with initial events), status subresources, ClusterIPs and garbage collection of owned objects.
// It has no admission, no RBAC and no validation. The broker is never simulated by it.
package memapi

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// Server is the API server of one cluster. The zero value is not usable; see New.
type Server struct {
	name string

	mu        sync.Mutex
	version   int64
	created   int // objects created so far, for uids
	nextIP    uint32
	resources map[string]*collection
	writes    map[string]int
}

// collection holds the objects of one resource.
type collection struct {
	objects map[types.NamespacedName]*object
	// events are the last changes, for watches that begin after a list.
	events   []event
	watchers map[*watcher]struct{}
}

// object is stored as the text that is sent. It is never changed.
type object struct {
	key     types.NamespacedName
	uid     types.UID
	version int64
	labels  map[string]string
	owners  []types.UID
	text    []byte
}

// event is one change; before is nil for a new object, after for a deleted one.
type event struct {
	version       int64
	before, after *object
}

// keptEvents is how many changes of a resource a new watch can begin before.
const keptEvents = 64

// New returns the API server of a cluster without objects, whose ClusterIPs are in a range.
func New(name string, clusterIPs netip.Prefix) *Server {
	first := clusterIPs.Masked().Addr().As4()
	return &Server{
		name: name, version: 1, nextIP: binary.BigEndian.Uint32(first[:]), resources: map[string]*collection{}, writes: map[string]int{},
	}
}

// Config returns a client configuration for the server.
func (s *Server) Config() *rest.Config {
	return &rest.Config{
		Host: "http://" + s.name, Transport: s, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: jsonType, AcceptContentTypes: jsonType},
	}
}

// Writes returns how many times objects of a resource, such as "services", were created, changed or
// deleted.
func (s *Server) Writes(resource string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes[resource]
}

func (s *Server) collection(resource string) *collection {
	c := s.resources[resource]
	if c == nil {
		c = &collection{objects: map[types.NamespacedName]*object{}, watchers: map[*watcher]struct{}{}}
		s.resources[resource] = c
	}
	return c
}

// content is an object as it is decoded for a write.
type content map[string]any

func (c content) meta() map[string]any {
	meta, ok := c["metadata"].(map[string]any)
	if !ok {
		meta = map[string]any{}
		c["metadata"] = meta
	}
	return meta
}

func (c content) field(name string) string {
	text, _ := c.meta()[name].(string)
	return text
}

// create stores a new object.
func (s *Server) create(k kind, namespace string, body content) (*object, *failure) {
	meta := body.meta()
	if namespace != "" {
		meta["namespace"] = namespace
	}
	s.created++
	if prefix := body.field("generateName"); body.field("name") == "" && prefix != "" {
		meta["name"] = prefix + strconv.Itoa(s.created)
	}
	key := types.NamespacedName{Namespace: namespace, Name: body.field("name")}
	if s.collection(k.resource).objects[key] != nil {
		return nil, alreadyExists(k, key.Name)
	}
	meta["uid"] = fmt.Sprintf("%s-%d", s.name, s.created)
	meta["creationTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	meta["generation"] = 1
	if k.hasStatus {
		delete(body, "status")
	}
	if k.resource == "services" {
		s.allocate(body)
	}
	return s.commit(k, nil, body)
}

// update replaces an object or, with status, its status only.
func (s *Server) update(k kind, key types.NamespacedName, body content, status bool) (*object, *failure) {
	current := s.collection(k.resource).objects[key]
	if current == nil {
		return nil, notFound(k, key.Name)
	}
	if version := body.field("resourceVersion"); version != "" && version != strconv.FormatInt(current.version, 10) {
		return nil, conflict(k, key.Name)
	}
	if uid := body.field("uid"); uid != "" && uid != string(current.uid) {
		return nil, conflict(k, key.Name)
	}
	var have content
	if err := json.Unmarshal(current.text, &have); err != nil {
		return nil, internal(err)
	}
	want := body
	if status {
		want = maps.Clone(have)
		want["status"] = body["status"]
	} else {
		meta, now := want.meta(), have.meta()
		for _, field := range []string{"uid", "creationTimestamp", "generation", "namespace", "name"} {
			if value, known := now[field]; known {
				meta[field] = value
			}
		}
		if k.hasStatus {
			want["status"] = have["status"]
		}
		if k.resource == "services" {
			s.allocate(want)
		}
	}
	want.meta()["resourceVersion"] = have.field("resourceVersion")
	same, sameSpec := compare(have, want)
	if same {
		return current, nil
	}
	if !sameSpec && !status {
		generation, _ := have.meta()["generation"].(float64)
		want.meta()["generation"] = generation + 1
	}
	return s.commit(k, current, want)
}

// compare reports whether two contents are the same, and whether they are apart from metadata and
// status.
func compare(have, want content) (same, sameSpec bool) {
	a, b := normal(have), normal(want)
	same = reflect.DeepEqual(a, b)
	for _, c := range []content{a, b} {
		delete(c, "metadata")
		delete(c, "status")
	}
	return same, same || reflect.DeepEqual(a, b)
}

// normal returns a content as a client would receive it, without empty fields.
func normal(c content) content {
	out := content{}
	text, err := json.Marshal(c)
	if err != nil || json.Unmarshal(text, &out) != nil {
		return c
	}
	for _, field := range []string{"managedFields"} {
		delete(out.meta(), field)
	}
	if out["status"] == nil {
		delete(out, "status")
	}
	return out
}

// remove deletes an object, and then those that it owns.
func (s *Server) remove(k kind, key types.NamespacedName, p *metav1.Preconditions) *failure {
	current := s.collection(k.resource).objects[key]
	if current == nil {
		return notFound(k, key.Name)
	}
	if p != nil && (p.UID != nil && *p.UID != current.uid ||
		p.ResourceVersion != nil && *p.ResourceVersion != strconv.FormatInt(current.version, 10)) {
		return conflict(k, key.Name)
	}
	if _, f := s.commit(k, current, nil); f != nil {
		return f
	}
	for _, owned := range ownedKinds {
		for ownedKey, obj := range s.collection(owned.resource).objects {
			for _, owner := range obj.owners {
				if owner == current.uid {
					_ = s.remove(owned, ownedKey, nil) // it exists: the lock is held
				}
			}
		}
	}
	return nil
}

// commit stores a change and sends it to the watches. Without a body it deletes.
func (s *Server) commit(k kind, before *object, body content) (*object, *failure) {
	s.version++
	s.writes[k.resource]++
	c := s.collection(k.resource)
	e := event{version: s.version, before: before}
	if body == nil {
		deleted, f := s.deleted(before)
		if f != nil {
			return nil, f
		}
		e.before = deleted
		delete(c.objects, before.key)
	} else {
		after, f := s.encode(body)
		if f != nil {
			return nil, f
		}
		e.after = after
		c.objects[after.key] = after
	}
	if len(c.events) >= 2*keptEvents {
		c.events = append([]event(nil), c.events[keptEvents:]...)
	}
	c.events = append(c.events, e)
	for w := range c.watchers {
		w.observe(e)
	}
	return e.after, nil
}

// deleted returns an object as watches see it when it is deleted: with the version of that change.
func (s *Server) deleted(obj *object) (*object, *failure) {
	var body content
	if err := json.Unmarshal(obj.text, &body); err != nil {
		return nil, internal(err)
	}
	return s.encode(body)
}

// encode returns a content as an object with the current version.
func (s *Server) encode(body content) (*object, *failure) {
	meta := body.meta()
	meta["resourceVersion"] = strconv.FormatInt(s.version, 10)
	delete(meta, "managedFields")
	text, err := json.Marshal(body)
	if err != nil {
		return nil, internal(err)
	}
	var head struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, internal(err)
	}
	obj := &object{
		key: types.NamespacedName{Namespace: head.Metadata.Namespace, Name: head.Metadata.Name}, uid: head.Metadata.UID,
		version: s.version, labels: head.Metadata.Labels, text: text,
	}
	for _, owner := range head.Metadata.OwnerReferences {
		obj.owners = append(obj.owners, owner.UID)
	}
	return obj, nil
}

// allocate gives a Service that has none a ClusterIP. Addresses are never used twice.
func (s *Server) allocate(svc content) {
	spec, ok := svc["spec"].(map[string]any)
	if !ok {
		spec = map[string]any{}
		svc["spec"] = spec
	}
	if ip, _ := spec["clusterIP"].(string); ip != "" {
		if spec["clusterIPs"] == nil {
			spec["clusterIPs"] = []any{ip}
		}
		return
	}
	s.nextIP++
	var raw [4]byte
	binary.BigEndian.PutUint32(raw[:], s.nextIP)
	ip := netip.AddrFrom4(raw).String()
	spec["clusterIP"], spec["clusterIPs"], spec["ipFamilies"] = ip, []any{ip}, []any{"IPv4"}
	if spec["ipFamilyPolicy"] == nil {
		spec["ipFamilyPolicy"] = "SingleStack"
	}
	if spec["type"] == nil {
		spec["type"] = "ClusterIP"
	}
	if spec["sessionAffinity"] == nil {
		spec["sessionAffinity"] = "None"
	}
	if spec["internalTrafficPolicy"] == nil {
		spec["internalTrafficPolicy"] = "Cluster"
	}
}
