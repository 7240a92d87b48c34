package subscription

// progress is how far the watch of one kind has come, by resource version. After a namespace was
// added the watch begins at the oldest version that it needs; of what it then repeats, events that
// the informer has already are left out.
type progress struct {
	// seen is the version up to which the watch has delivered everything.
	seen int64
	// listed are the versions up to which the informer has the objects of namespaces that were added,
	// and others that of all other namespaces. They are empty when the watch has passed them.
	listed map[string]int64
	others int64
}

// add returns the progress of a watch that also selects added namespaces, whose objects were listed
// at a version.
func (p progress) add(added Selection, version int64) progress {
	next := progress{seen: min(p.seen, version), listed: map[string]int64{}, others: max(p.others, p.seen)}
	for namespace, listed := range p.listed {
		next.listed[namespace] = max(listed, p.seen)
	}
	for namespace := range added.names {
		next.listed[namespace] = version
	}
	return next
}

// observe records an event of the watch, and reports whether it is new to the informer.
func (p *progress) observe(namespace string, version int64) (isNew bool) {
	has, added := p.listed[namespace]
	if !added {
		has = p.others
	}
	p.pass(version)
	return version > has
}

// pass records that the watch has delivered everything up to a version.
func (p *progress) pass(version int64) {
	p.seen = max(p.seen, version)
	if p.seen < p.others {
		return
	}
	for _, listed := range p.listed {
		if p.seen < listed {
			return
		}
	}
	p.listed, p.others = nil, 0
}
