// Package wire is the protocol between the agents of a clusterset and the beacons of its members: a
// probe and its answer, each one UDP datagram.
//
//	probe   magic 4 | hash of the cluster id 16 | nonce 16 | tag 16    52 bytes
//	answer  magic 4 | nonce 16 | tag 16                                36 bytes
//
// A tag is HMAC-SHA256 under the key of the probed cluster, cut to 16 bytes, over a label and what
// precedes it; the tag of an answer covers the hash of the cluster id too. Probes and answers have
// different labels, so neither can be replayed as the other. The answer is shorter than the probe:
// a beacon that gets probes with a forged source amplifies nothing.
package wire

import (
	"crypto/hmac"
	"crypto/sha256"
)

// Port is the UDP port at which beacons answer.
const Port = 9446

// The Secret from which beacons read the identity of their cluster has these keys, and the folder
// in which it is mounted these files.
const (
	KeyFile       = "key"
	ClusterIDFile = "clusterID"
)

const (
	// KeySize is the length of a cluster's key.
	KeySize = 32
	// NonceSize is the length of a nonce.
	NonceSize = 16
	// ProbeSize is the length of a probe.
	ProbeSize = len(probeMagic) + hashSize + NonceSize + tagSize
	// AnswerSize is the length of an answer.
	AnswerSize = len(answerMagic) + NonceSize + tagSize

	hashSize = 16
	tagSize  = 16

	// The last byte is the version of the protocol.
	probeMagic  = "SMP\x01"
	answerMagic = "SMA\x01"

	probeLabel  = "seamark beacon probe"
	answerLabel = "seamark beacon answer"
)

// Key is the secret that the members of a clusterset share with the beacons of one of them.
type Key [KeySize]byte

// ParseKey returns the key in raw bytes, and whether they are one.
func ParseKey(raw []byte) (key Key, ok bool) {
	if len(raw) != KeySize {
		return key, false
	}
	return Key(raw), true
}

// Nonce identifies a probe. Each probe has a random one, so that no answer can be given before the
// probe was received.
type Nonce [NonceSize]byte

// Identity is a cluster as its beacons and those who probe them know it.
type Identity struct {
	key  Key
	hash [hashSize]byte
}

// NewIdentity returns the identity of a cluster.
func NewIdentity(clusterID string, key Key) Identity {
	sum := sha256.Sum256([]byte(clusterID))
	return Identity{key: key, hash: [hashSize]byte(sum[:])}
}

// Probe returns the datagram of a probe.
func (id Identity) Probe(nonce Nonce) []byte {
	out := make([]byte, 0, ProbeSize)
	out = append(out, probeMagic...)
	out = append(out, id.hash[:]...)
	out = append(out, nonce[:]...)
	return id.appendTag(out, probeLabel, out)
}

// Answer returns the datagram that answers a probe. ok is false for all that is not a probe of this
// cluster under its key: a beacon does not answer those.
func (id Identity) Answer(probe []byte) (answer []byte, ok bool) {
	if len(probe) != ProbeSize || string(probe[:len(probeMagic)]) != probeMagic {
		return nil, false
	}
	body := probe[:ProbeSize-tagSize]
	if !hmac.Equal(id.appendTag(nil, probeLabel, body), probe[ProbeSize-tagSize:]) {
		return nil, false
	}
	if !hmac.Equal(body[len(probeMagic):][:hashSize], id.hash[:]) {
		return nil, false
	}
	return id.answerTo(Nonce(body[len(probeMagic)+hashSize:])), true
}

// NonceOf returns the nonce that a datagram claims to answer. ok is false if it is no answer.
func NonceOf(answer []byte) (nonce Nonce, ok bool) {
	if len(answer) != AnswerSize || string(answer[:len(answerMagic)]) != answerMagic {
		return nonce, false
	}
	return Nonce(answer[len(answerMagic):][:NonceSize]), true
}

// Verify reports whether a datagram is the answer of a beacon of this cluster to the probe with a
// nonce.
func (id Identity) Verify(answer []byte, nonce Nonce) bool {
	return hmac.Equal(id.answerTo(nonce), answer)
}

func (id Identity) answerTo(nonce Nonce) []byte {
	out := make([]byte, 0, AnswerSize)
	out = append(out, answerMagic...)
	out = append(out, nonce[:]...)
	return id.appendTag(out, answerLabel, out, id.hash[:])
}

func (id Identity) appendTag(to []byte, label string, parts ...[]byte) []byte {
	mac := hmac.New(sha256.New, id.key[:])
	mac.Write([]byte(label))
	for _, part := range parts {
		mac.Write(part)
	}
	return append(to, mac.Sum(nil)[:tagSize]...)
}
