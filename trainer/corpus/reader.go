package corpus

import (
	"fmt"
	"slices"
)

// VocabularyError is returned for a token outside the model's vocabulary.
type VocabularyError struct {
	Position   int // position in its sequence
	Token      int32
	Vocabulary int
}

func (e *VocabularyError) Error() string {
	return fmt.Sprintf("corpus: token %d is %d, expected less than %d", e.Position, e.Token, e.Vocabulary)
}

// Sequence is a text as tokens: Bytes, or a file of Tokens.
type Sequence interface {
	Len() int
	ReadTokens(dst []int32, first int) error // reads len(dst) tokens, from number first on
}

// Bytes is a text whose tokens are its bytes.
type Bytes []byte

// Len returns the number of bytes.
func (b Bytes) Len() int { return len(b) }

// ReadTokens sets dst to the bytes from first on. It panics if there are too few.
func (b Bytes) ReadTokens(dst []int32, first int) error {
	for i, c := range b[first:][:len(dst)] {
		dst[i] = int32(c)
	}
	return nil
}

// Reader reads windows of a sequence for a model that predicts the next token. It allocates
// only if a call has a longer window, or more tokens in all, than every earlier call.
type Reader struct {
	Sequence   Sequence
	Windows    Windows
	Vocabulary int // 0 means no limit

	ids            []int32 // of a window, and the token after it
	tokens, labels []int32
	weights        []float32
}

// Read returns the tokens of the windows, one window after another. The label of a token is the token that
// follows it, and its weight is 1. The last token of the sequence has the label 0 and the weight 0. The slices
// are valid until the next call to Read.
func (r *Reader) Read(windows ...int) (tokens, labels []int32, weights []float32, err error) {
	r.tokens, r.labels, r.weights = r.tokens[:0], r.labels[:0], r.weights[:0]
	for _, i := range windows {
		begin, end := r.Windows.Window(i)
		n := end - begin
		r.ids = append(r.ids[:0], make([]int32, n+1)...)
		known := r.ids[:min(n+1, r.Sequence.Len()-begin)]
		if err := r.Sequence.ReadTokens(known, begin); err != nil {
			return nil, nil, nil, err
		}
		if most := slices.Max(known); r.Vocabulary > 0 && int(most) >= r.Vocabulary {
			return nil, nil, nil, &VocabularyError{begin + slices.Index(known, most), most, r.Vocabulary}
		}
		r.tokens, r.labels = append(r.tokens, r.ids[:n]...), append(r.labels, r.ids[1:]...)
		for range n {
			r.weights = append(r.weights, 1)
		}
		if len(known) == n {
			r.weights[len(r.weights)-1] = 0
		}
	}
	return r.tokens, r.labels, r.weights, nil
}
