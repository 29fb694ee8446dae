package schedule

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
)

var kindNames = [NumKinds]string{
	"NONE", "F", "B", "I", "W", "SEND_F", "RECV_F", "SEND_B", "RECV_B", "WAIT_F", "WAIT_B",
	"OFFLOAD", "WAIT_OFFLOAD", "RELOAD", "UNSHARD", "RESHARD", "REDUCE_GRAD", "ZERO_GRAD", "WAIT_REDUCE", "RECOMPUTE", "QUANTIZE", "OPTIMIZER",
}

// String returns the name of the kind in PyTorch's spelling.
func (k Kind) String() string {
	if int(k) < NumKinds {
		return kindNames[k]
	}
	return "KIND(" + strconv.Itoa(int(k)) + ")"
}

// ParseKind is the inverse of Kind.String. It returns false if the name is unknown.
func ParseKind(name string) (Kind, bool) {
	i := slices.Index(kindNames[:], name)
	return Kind(max(i, 0)), i >= 0
}

// stageKinds is a bit set of the kinds whose actions usually belong to a stage alone.
const stageKinds = 1<<Unshard | 1<<Reshard | 1<<ReduceGrad | 1<<ZeroGrad | 1<<WaitReduce | 1<<Quantize | 1<<Optimizer

// OfStage reports whether an action of the kind usually concerns a stage as a whole. The text of such an action omits
// microbatch 0.
func (k Kind) OfStage() bool {
	return stageKinds>>k&1 == 1
}

// String returns the action in PyTorch's notation: stage, kind and microbatch, without drops and join,
// as in 2F0 or 3SEND_B17. Microbatch 0 is omitted if the action belongs to a stage alone, as in
// 1UNSHARD.
func (a Action) String() string {
	var buf [40]byte
	return string(a.appendText(buf[:0]))
}

func (a Action) appendText(b []byte) []byte {
	b = strconv.AppendInt(b, int64(a.Stage()), 10)
	b = append(b, a.Kind().String()...)
	if a.Microbatch() == 0 && a.Kind().OfStage() {
		return b
	}
	return strconv.AppendInt(b, int64(a.Microbatch()), 10)
}

// ParseAction is the inverse of Action.String. The error wraps ErrText and describes the expected form;
// its method Fault() string returns the message without a prefix.
func ParseAction(text string) (Action, error) {
	a, fault := parseAction(text)
	if fault != "" {
		return 0, diagnostic.Errorf(ErrText, "found %q, %s", shorten(text), fault)
	}
	return a, nil
}

// AppendText appends the action with its drops and its join in the text form of plans, such as
// 1B3~gs&. It never fails. Kinds and drops without a name cannot be read back.
func (a Action) AppendText(b []byte) ([]byte, error) {
	return a.appendWord(b), nil
}

// MarshalText returns the text that AppendText appends.
func (a Action) MarshalText() ([]byte, error) { return a.appendWord(nil), nil }

// UnmarshalText is the inverse of MarshalText. Its errors have the same form as those of ParseAction.
func (a *Action) UnmarshalText(text []byte) error {
	parsed, fault := parseWord(string(text))
	if fault != "" {
		return diagnostic.Errorf(ErrText, "found %q, %s", shorten(string(text)), fault)
	}
	*a = parsed
	return nil
}

func (a Action) appendWord(b []byte) []byte {
	b = a.appendText(b)
	if a.Drop() != 0 {
		b = append(b, '~')
		b = a.Drop().appendText(b)
	}
	if a.Joined() {
		b = append(b, '&')
	}
	return b
}

// parseWord is the inverse of appendWord. The second result is the fault of the word, or "".
func parseWord(word string) (Action, string) {
	word, joined := strings.CutSuffix(word, "&")
	word, letters, drops := strings.Cut(word, "~")
	a, fault := parseAction(word)
	if fault == "" && drops {
		var drop Drop
		drop, fault = parseDrop(letters)
		a = a.WithDrop(drop)
	}
	if fault != "" {
		return 0, fault
	}
	return a.WithJoin(joined), ""
}

// parseAction parses an action without drops and join. The second result is the fault of the text, or "".
func parseAction(text string) (Action, string) {
	const digits = "0123456789"
	name := strings.TrimLeft(text, digits)
	number := strings.TrimLeft(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_")
	stageText, kindText := text[:len(text)-len(name)], name[:len(name)-len(number)]

	kind, ok := ParseKind(kindText)
	if stageText == "" || !ok || strings.Trim(number, digits) != "" || number == "" && !kind.OfStage() {
		return 0, "expected an action such as 2F0 or 1SEND_F3: stage, kind, microbatch"
	}
	stage, ok := parseNumber(stageText, MaxStages-1)
	if !ok {
		return 0, fmt.Sprintf("expected a stage from 0 to %d", MaxStages-1)
	}
	mb, ok := 0, true
	if number != "" {
		mb, ok = parseNumber(number, MaxMicrobatches-1)
	}
	if !ok {
		return 0, fmt.Sprintf("expected a microbatch from 0 to %d", MaxMicrobatches-1)
	}
	return NewAction(kind, stage, mb), ""
}

// parseNumber parses decimal digits. It returns false if digits is empty or has other characters, or if the
// number exceeds the limit.
func parseNumber(digits string, limit int) (int, bool) {
	if digits == "" {
		return 0, false
	}
	n := 0
	for _, d := range []byte(digits) {
		if d < '0' || d > '9' {
			return 0, false
		}
		if n = 10*n + int(d-'0'); n > limit {
			return 0, false
		}
	}
	return n, true
}

// dropLetters contains the letters of the drop bits, lowest bit first.
const dropLetters = "piogstrfba"

// KnownDrops is the set of bits that have a letter.
const KnownDrops = Drop(1<<len(dropLetters) - 1)

// String returns the letters of the bits in the order of the constants, or "" if no bit is set. A
// final ? represents all bits without a letter.
func (d Drop) String() string {
	var buf [len(dropLetters) + 1]byte
	return string(d.appendText(buf[:0]))
}

func (d Drop) appendText(b []byte) []byte {
	for i := range len(dropLetters) {
		if d>>i&1 == 1 {
			b = append(b, dropLetters[i])
		}
	}
	if d&^KnownDrops != 0 {
		b = append(b, '?')
	}
	return b
}

// parseDrop returns the bits of the letters. The second result is the fault of the letters, or "". They may
// be in any order, but each may occur only once.
func parseDrop(letters string) (Drop, string) {
	var drop Drop
	for i := range len(letters) {
		bit := strings.IndexByte(dropLetters, letters[i])
		if bit < 0 || drop>>bit&1 == 1 {
			return 0, "expected drop letters out of " + dropLetters + ", each at most once"
		}
		drop |= 1 << bit
	}
	if drop == 0 {
		return 0, "expected drop letters out of " + dropLetters + " after ~"
	}
	return drop, ""
}

var modeNames = [numModes]string{"training", "forward-only"}

// String returns the name of the mode: training or forward-only.
func (m Mode) String() string {
	if int(m) < numModes {
		return modeNames[m]
	}
	return "mode(" + strconv.Itoa(int(m)) + ")"
}

// ParseMode is the inverse of Mode.String. It returns false if the name is unknown.
func ParseMode(name string) (Mode, bool) {
	i := slices.Index(modeNames[:], name)
	return Mode(max(i, 0)), i >= 0
}

var runtimeNames = [numRuntimes]string{
	"weir", "pytorch", "pytorch-2.9", "pytorch-2.14", "pytorch-2.14-direction", "pytorch-2.15", "pytorch-2.15-lazy", "pytorch-2.15-edge",
}

// String returns the name of the runtime, such as weir, pytorch or pytorch-2.15.
func (r Runtime) String() string {
	if int(r) < numRuntimes {
		return runtimeNames[r]
	}
	return "runtime(?)"
}

// Runtimes returns all runtimes.
func Runtimes() []Runtime {
	list := make([]Runtime, numRuntimes)
	for i := range list {
		list[i] = Runtime(i)
	}
	return list
}

// ParseRuntime is the inverse of Runtime.String. It returns false if the name is unknown.
func ParseRuntime(name string) (Runtime, bool) {
	i := slices.Index(runtimeNames[:], name)
	return Runtime(max(i, 0)), i >= 0
}
