package wire

import (
	"bytes"
	"encoding/hex"
	"testing"

	"pgregory.net/rapid"
)

func keyOf(b byte) (key Key) {
	for i := range key {
		key[i] = b
	}
	return key
}

var nonce = Nonce{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}

// Agents and beacons of different versions meet: the bytes must not change within a version.
func TestDatagramsAreFixed(t *testing.T) {
	east := NewIdentity("east", keyOf(7))
	probe := east.Probe(nonce)
	const wantProbe = "534d5001" + "6bdb262b0201799aefb0ae4116c6fb88" + "0102030405060708090a0b0c0d0e0f10"
	if got := hex.EncodeToString(probe[:ProbeSize-tagSize]); got != wantProbe {
		t.Errorf("probe %s, want %s", got, wantProbe)
	}
	answer, ok := east.Answer(probe)
	const wantAnswer = "534d4101" + "0102030405060708090a0b0c0d0e0f10"
	if got := hex.EncodeToString(answer[:AnswerSize-tagSize]); !ok || got != wantAnswer {
		t.Errorf("answer %s (%t), want %s", got, ok, wantAnswer)
	}
	const wantTags = "56d8b559b5577f2f94aac03bfebb9a83 483610882a6ac3a99e7ef7ab3940685e"
	if got := hex.EncodeToString(probe[ProbeSize-tagSize:]) + " " + hex.EncodeToString(answer[AnswerSize-tagSize:]); got != wantTags {
		t.Errorf("tags %s, want %s", got, wantTags)
	}
}

func TestAnswersAreShorterThanProbes(t *testing.T) {
	east := NewIdentity("east", keyOf(7))
	answer, ok := east.Answer(east.Probe(nonce))
	if !ok || len(answer) >= ProbeSize {
		t.Errorf("%d bytes answer %d (%t)", len(answer), ProbeSize, ok)
	}
}

func TestOnlyItsOwnProbesAreAnswered(t *testing.T) {
	east := NewIdentity("east", keyOf(7))
	for name, id := range map[string]Identity{
		"another cluster with the same key": NewIdentity("west", keyOf(7)),
		"another key":                       NewIdentity("east", keyOf(8)),
	} {
		probe := id.Probe(nonce)
		if answer, ok := east.Answer(probe); ok || answer != nil {
			t.Errorf("a probe for %s is answered: %x", name, answer)
		}
		answer, _ := id.Answer(probe)
		if east.Verify(answer, nonce) {
			t.Errorf("an answer of %s is accepted", name)
		}
	}
	answer, _ := east.Answer(east.Probe(nonce))
	if _, ok := east.Answer(answer); ok {
		t.Error("an answer is answered")
	}
	if east.Verify(answer, Nonce{}) {
		t.Error("the answer to another probe is accepted")
	}
}

// A datagram that differs from a probe in a single bit or in its length is not answered, and no
// bytes make the decoder fail.
func TestHostileDatagrams(t *testing.T) {
	east := NewIdentity("east", keyOf(7))
	probe := east.Probe(nonce)
	answer, _ := east.Answer(probe)
	for bit := range ProbeSize * 8 {
		forged := bytes.Clone(probe)
		forged[bit/8] ^= 1 << (bit % 8)
		if _, ok := east.Answer(forged); ok {
			t.Errorf("a probe with bit %d changed is answered", bit)
		}
	}
	for bit := range AnswerSize * 8 {
		forged := bytes.Clone(answer)
		forged[bit/8] ^= 1 << (bit % 8)
		if east.Verify(forged, nonce) {
			t.Errorf("an answer with bit %d changed is accepted", bit)
		}
	}
	for size := range ProbeSize {
		if _, ok := east.Answer(probe[:size]); ok {
			t.Errorf("the first %d bytes of a probe are answered", size)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		datagram := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "datagram")
		if rapid.Bool().Draw(t, "with magic") {
			datagram = append([]byte(rapid.SampledFrom([]string{probeMagic, answerMagic}).Draw(t, "magic")), datagram...)
		}
		if _, ok := east.Answer(datagram); ok {
			t.Fatalf("answered: %x", datagram)
		}
		if claimed, ok := NonceOf(datagram); ok && east.Verify(datagram, claimed) {
			t.Fatalf("accepted: %x", datagram)
		}
	})
}

func TestParseKey(t *testing.T) {
	want := keyOf(7)
	if key, ok := ParseKey(want[:]); !ok || key != want {
		t.Errorf("%x (%t)", key, ok)
	}
	for _, raw := range [][]byte{nil, want[:31], append(want[:], 0)} {
		if _, ok := ParseKey(raw); ok {
			t.Errorf("%d bytes are a key", len(raw))
		}
	}
}
