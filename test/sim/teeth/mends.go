package main

const (
	imports  = "internal/agent/imports/"
	exports  = "internal/agent/exports/"
	applying = "internal/agent/apply/"
	member   = "internal/agent/member/"
)

// mends are those that the simulator can express. The name says what the code does.
var mends = []mend{
	{name: "the derived Service outlives its ServiceImport", edits: []edit{{
		imports + "derived.go",
		"return o.Kind == mcsv1beta1.ServiceImportKindName",
		"return false",
	}, {
		imports + "derived.go",
		"	return Derived{Want: want, Replace: replace}\n",
		"	if si := in.Existing; si != nil {\n" +
			"		want.OwnerReferences = []metav1.OwnerReference{{Kind: mcsv1beta1.ServiceImportKindName, Name: si.Name, UID: si.UID}}\n" +
			"	}\n	return Derived{Want: want, Replace: replace}\n",
	}}},
	{name: "the living decide about a service whose oldest exporter is dead", edits: []edit{{
		member + "demotion.go",
		"now.Sub(verdict.Since) >= objects.DemoteAfter(lease.Duration) {",
		"now.Sub(verdict.Since) >= 1000*objects.DemoteAfter(lease.Duration) {",
	}}},
	{name: "a cluster that was demoted yields when it returns", with: "-sim.emphasis=death", edits: []edit{{
		member + "yield.go",
		"	return h.yield(ctx)\n",
		"	return nil\n",
	}}},
	{name: "a demotion leaves no port without endpoints", with: "-sim.emphasis=death", edits: []edit{{
		imports + "demoted.go",
		"if in.Existing == nil || in.hasDecided(merged) {",
		"if in.Existing == nil || in.hasDecided(merged) || true {",
	}}},
	{name: "all members demote a cluster at the same time", with: "-sim.emphasis=death", edits: []edit{{
		member + "demotion.go",
		"if _, stale := l.verdicts[member]; !stale {",
		"if member == l.self {",
	}}},
	{name: "members that disagree do not overwrite an aggregate at once", edits: []edit{{
		"internal/agent/aggregate/decide.go",
		"return writer != \"\" && writer != in.ClusterID && !in.Stale[writer]",
		"return writer == in.ClusterID && false",
	}}},
	{name: "a cluster that returned stays demoted for the duration of a lease", with: "-sim.emphasis=death", edits: []edit{{
		member + "demotion.go",
		"return stale || l.demoted[cluster] && now.Sub(lease.returned) < lease.Duration",
		"return stale",
	}}},
	{name: "verdicts are saved again after an answer was lost", edits: []edit{{
		"internal/agent/judge.go",
		"if (j.unsaved || !maps.Equal(verdicts, j.saved)) &&",
		"if !maps.Equal(verdicts, j.saved) &&",
	}}},
	{name: "all services are reconciled after the broker was restored", with: "-sim.emphasis=restore", edits: []edit{{
		"internal/agent/runnables.go",
		"	a.restored.Store(true)\n",
		"",
	}}},
	{name: "imports stay while a restored broker lacks records", with: "-sim.early -sim.emphasis=restore", edits: []edit{{
		imports + "offline.go",
		"if left := lostDelay - time.Since(since); left > 0 {",
		"if left := lostDelay - time.Since(since); left > lostDelay {",
	}}},
	{name: "a record outlives its Service for two seconds", edits: []edit{{
		exports + "reconciler.go",
		"return r.replacements.Remaining(key, replaceTimeout)",
		"return 0",
	}}},
	{name: "silence proves nothing while the own watch is down", edits: []edit{{
		member + "liveness.go",
		"l.watchLive = own != nil && now.Sub(l.ownRenewalObserved) <= own.Duration/2",
		"l.watchLive = own != nil",
	}}},
	{name: "verdicts about dead clusters survive a restart", edits: []edit{{
		"internal/agent/judge.go",
		"	j.Adopt(verdicts)\n	j.saved = verdicts",
		"	j.saved = verdicts",
	}}},
	{name: "a dead cluster is replaced port by port", edits: []edit{{
		"internal/objects/reachable/served.go",
		"	left := *s\n	left.Ports = unserved\n	return &left",
		"	return nil",
	}}},
	{name: "a newer export takes no family from a service", edits: []edit{{
		"internal/merge/leftout.go",
		"	r.Spec.IPFamilies = won.in(oldest)",
		"	for _, m := range exports {\n		if shared := won & familiesOf(m); shared != 0 {\n			won = shared\n		}\n	}\n" +
			"	r.Spec.IPFamilies = won.in(oldest)",
	}}},
	{name: "annotations of other controllers stay", edits: []edit{{
		imports + "metadata.go",
		"	obj.SetAnnotations(union(foreign(existing.GetAnnotations(), annotations), obj.GetAnnotations()))",
		"	_ = annotations",
	}}},
	{name: "a deletion names the object that was read", edits: []edit{{
		applying + "apply.go",
		`	err := w.client.Delete(ctx, obj, client.Preconditions{UID: ptr.To(obj.GetUID()), ResourceVersion: ptr.To(obj.GetResourceVersion())})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if w.OnWrite`,
		`	err := w.client.Delete(ctx, obj)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if w.OnWrite`,
	}}},
	{name: "a reconciler waits until it sees its own writes", edits: []edit{{
		applying + "apply.go",
		"if len(p.writes) > 0 && time.Since(p.since) < CacheTimeout {",
		"if false {",
	}}},
	{name: "a service whose records were lost gets its addresses back", edits: []edit{{
		exports + "claims.go",
		"if objects.FamilyOf(addr) == family && in.Accepts(addr) {",
		"if objects.FamilyOf(addr) == family && false {",
	}}},
	{name: "watches of a restored broker start over", edits: []edit{{
		"internal/agent/runnables.go",
		"	a.restartWatches()\n",
		"",
	}}},
	{name: "a broker that was restored before the first renewal is noticed", edits: []edit{{
		member + "heartbeat.go",
		"if h.lastVersion < newest {",
		"if false && h.lastVersion < newest {",
	}, {
		member + "heartbeat.go",
		"	w.waited++\n	return true",
		"	w.waited++\n	return false",
	}}},
}
