package objects

import "time"

// longestPrecedence bounds DemoteAfter: members choose how long their leases last.
const longestPrecedence = time.Minute

// DemoteAfter returns for how long a stale cluster keeps its precedence, given how long its lease
// lasts. An agent that restarts is back earlier.
func DemoteAfter(lease time.Duration) time.Duration { return min(3*lease, longestPrecedence) }
