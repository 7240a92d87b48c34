package sim

import (
	"slices"
	"time"
)

func doRestart(_ *world, m *member, _ string, _ uint64) {
	if m.deadSince.IsZero() {
		m.restart()
	}
}

func doCrash(w *world, m *member, _ string, random uint64) {
	if m.deadSince.IsZero() {
		m.agent.crashIn = 1 + int(random%4)
		for range 60 {
			w.step()
		}
		m.restart()
	}
}

// doChangeLeader starts another process while the former leader still completes a few reconciles
// from what it has cached.
func doChangeLeader(w *world, m *member, _ string, random uint64) {
	if !m.deadSince.IsZero() {
		return
	}
	old := m.agent
	old.cancel()
	w.settle()
	old.local.cut, old.broker.cut = true, true
	m.former = append(m.former, old)
	m.start()
	for range random % 30 {
		w.step()
	}
	old.stop()
}

func doDie(_ *world, m *member, _ string, _ uint64) {
	if m.deadSince.IsZero() {
		m.agent.stop()
		m.deadSince = time.Now()
	}
}

func doReturn(_ *world, m *member, _ string, _ uint64) {
	if !m.deadSince.IsZero() {
		m.deadSince, m.steadySince = time.Time{}, time.Now()
		m.start()
	}
}

// doCutOff begins a partition. Every other one lasts until the leases of all other members would
// have expired.
func doCutOff(w *world, m *member, _ string, random uint64) {
	m.cutOff, m.agent.broker.cut = true, true
	if random%2 == 0 {
		w.run(verdictTime)
	}
}

func doReconnect(w *world, m *member, _ string, _ uint64) {
	m.reconnect(w.rng.IntN(2) == 0)
}

// reconnect ends a partition. The watches resume, or list again if the server does not have the
// changes since then any more.
func (m *member) reconnect(list bool) {
	if m.cutOff {
		m.steadySince = time.Now()
		for _, i := range m.agent.broker.order {
			i.mustList = i.mustList || list || i.epoch != i.view.server.epoch
		}
	}
	m.cutOff, m.agent.broker.cut = false, false
	m.agent.wake()
}

func doBreakWatches(w *world, m *member, _ string, _ uint64) {
	views := []*view{m.agent.local, m.agent.broker}
	for _, i := range views[w.rng.IntN(2)].order {
		if w.rng.IntN(2) == 0 {
			i.mustList = true
			i.wake()
		}
	}
}

func doFreeze(w *world, m *member, _ string, _ uint64) {
	for _, v := range []*view{m.agent.local, m.agent.broker} {
		for _, i := range v.order {
			i.frozen = w.rng.IntN(4) == 0
			i.wake()
		}
	}
}

func doFail(_ *world, m *member, _ string, random uint64) { m.failing = int(random % 8) }

func doStepClock(_ *world, m *member, _ string, random uint64) {
	m.server.skew = time.Duration(random%7200)*time.Second - time.Hour
}

// doSetBack restores the broker from a backup that is at least 20 seconds old. Watches stay silent
// until an agent notices and starts them over.
func doSetBack(w *world, _ *member, _ string, random uint64) {
	var old []backup
	for _, b := range w.broker.backups {
		if time.Since(b.at) > leaseDuration && (earlyBackups || b.at.After(w.checker.beginning)) {
			old = append(old, b)
		}
	}
	if len(old) == 0 {
		return
	}
	w.checker.brokerSetBack()
	w.broker.restore(old[random%uint64(len(old))])
	for _, m := range w.members {
		m.agent.listAgainIfListing()
	}
}

// listAgainIfListing lets a process whose lists are under way list everything again. Its heartbeat
// would not notice that the broker was restored between them; its transport does, which is not
// simulated.
func (a *agentProcess) listAgainIfListing() {
	if !slices.ContainsFunc(a.broker.order, func(i *informer) bool { return !i.synced.Load() || i.mustList }) {
		return
	}
	for _, i := range a.broker.order {
		i.mustList = true
		i.wake()
	}
}

// wake looks for changes that can be delivered again.
func (a *agentProcess) wake() {
	for _, v := range []*view{a.local, a.broker} {
		for _, i := range v.order {
			i.wake()
		}
	}
}

// heal ends all faults. Members that died return if all is true.
func (w *world) heal(all bool) {
	w.logf("heal")
	for _, m := range w.members {
		if all && !m.deadSince.IsZero() {
			doReturn(w, m, "", 0)
		}
		m.failing = 0
		m.agent.crashIn = 0
		if m.agent.stopped && m.deadSince.IsZero() {
			m.start()
		}
		m.reconnect(false)
		for _, v := range []*view{m.agent.local, m.agent.broker} {
			for _, i := range v.order {
				i.frozen = false
			}
		}
		m.agent.wake()
	}
}
