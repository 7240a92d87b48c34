package zone

import (
	"maps"
	"sync/atomic"
)

// shardCount is a power of two. A change copies one shard, so with a hundred thousand services each
// shard has about a hundred entries.
const shardCount = 1024

// shardedMap is a map with many concurrent readers and one writer. A read is two loads and a
// lookup: no lock, no allocation.
//
// Until it is published it has no readers. Then it is written in place: to copy a shard for every
// entry of a large first load would take time in proportion to the square of their number.
type shardedMap[K comparable, V any] struct {
	hash      func(K) uint64
	published bool
	shards    [shardCount]atomic.Pointer[map[K]V]
}

func (t *shardedMap[K, V]) shard(key K) *atomic.Pointer[map[K]V] {
	return &t.shards[t.hash(key)%shardCount]
}

// get may be called at any time after publication, and before by the goroutine that may call set.
func (t *shardedMap[K, V]) get(key K) (value V, found bool) {
	if m := t.shard(key).Load(); m != nil {
		value, found = (*m)[key]
	}
	return value, found
}

// set may be called by one goroutine at a time.
func (t *shardedMap[K, V]) set(key K, value V) {
	part := t.shard(key)
	next := map[K]V{}
	if m := part.Load(); m != nil {
		if !t.published {
			(*m)[key] = value
			return
		}
		next = make(map[K]V, len(*m)+1)
		maps.Copy(next, *m)
	}
	next[key] = value
	part.Store(&next)
}

// remove may be called by the goroutine that may call set.
func (t *shardedMap[K, V]) remove(key K) {
	part := t.shard(key)
	m := part.Load()
	if m == nil {
		return
	}
	if _, found := (*m)[key]; !found {
		return
	}
	if !t.published {
		delete(*m, key)
		return
	}
	if len(*m) == 1 {
		part.Store(nil)
		return
	}
	next := make(map[K]V, len(*m)-1)
	for k, v := range *m {
		if k != key {
			next[k] = v
		}
	}
	part.Store(&next)
}
