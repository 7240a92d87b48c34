// Package brokeradmin administers a clusterset: on the broker it deploys the broker, invites
// members and removes them; in a member it joins and leaves.
package brokeradmin
