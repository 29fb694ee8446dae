package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"os"
	"slices"
	"strings"

	"github.com/weir-ml/weir/cmd/weir/internal/fit"
	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/format"
	"github.com/weir-ml/weir/schedule/lengths"
	"github.com/weir-ml/weir/schedule/simulate"
)

// costFlags holds the flags with the costs of actions.
type costFlags struct {
	F           decimal `help:"Time of a forward, per rank and microbatch, divided evenly over the stages that the microbatch visits there; by default 1." placeholder:"T"`
	I           decimal `help:"Time of an input gradient, in the same way." placeholder:"T"`
	W           decimal `help:"Time of a weight gradient, in the same way; a full backward takes both." placeholder:"T"`
	Fb          decimal `help:"Time of a joined forward and backward, in the same way; by default the sum." placeholder:"T"`
	Q           decimal `help:"Time of the QUANTIZE actions of a rank, divided evenly over its stages; by default 0." placeholder:"T"`
	Latency     decimal `help:"Latency of a hop between ranks; both may compute meanwhile." placeholder:"T"`
	FarTime     decimal `help:"Time of the copy of a rank's saved tensors of a microbatch to far memory, divided evenly over its stages, and of the copy back (--offload); by default 0." placeholder:"T"`
	ReplicaRate rate    `help:"With --costs in ns, us, ms or s: the rate of the link between replicas of a rank in each direction, such as 50GB/s, in place of the file's." placeholder:"RATE"`
	Lengths     string  `help:"With costs that depend on it: a file with the lengths of the sequences of each microbatch in tokens, a microbatch a line, in place of the lengths in the file of costs." placeholder:"FILE"`
	Costs       string  `help:"A file of costs and bytes for each stage, in place of the flags above (docs/cli.md; examples/train -emit-costs writes one); or a model's profile by weir.profile, with the flags below (docs/profile.md)." placeholder:"FILE"`
	Seq         int     `help:"With a profile: tokens of a sequence." placeholder:"N" needs:"costs"`
	Sequences   int     `help:"With a profile: sequences of a microbatch." default:"1" placeholder:"N" needs:"costs"`
	Layers      []int   `help:"With a profile: layers of each stage, separated by commas; by default the longest stage is as short as possible." placeholder:"N" needs:"costs"`
	Teraflops   float64 `help:"With a profile: operations that a rank does in a second, in 10^12." default:"400" placeholder:"N" needs:"costs"`
	LinkRate    rate    `help:"With a profile: the rate of a link between ranks, such as 50GB/s." default:"50GB/s" placeholder:"RATE" needs:"costs"`

	profiled *profiled // the profile that the file contains, or nil
	vary     bool      // the costs of a profile must hold for microbatches of any length; the caller sets the lengths
}

// profiled is a profile from which costs were computed.
type profiled struct {
	pieces *fit.Pieces
	setup  fit.Setup
	cut    []int
}

// layersByStage returns the layers of each stage of a profile's costs, or nil for other costs.
func (c *costFlags) layersByStage() []int {
	if c.profiled == nil {
		return nil
	}
	return c.profiled.cut
}

// layersLine prints the layers of each stage, if there are any.
func layersLine(w io.Writer, layers []int) {
	if layers != nil {
		fmt.Fprintf(w, "layers by stage: %s\n", strings.Trim(fmt.Sprint(layers), "[]"))
	}
}

// decimal is an exact decimal number.
type decimal struct{ *big.Rat }

// UnmarshalText reads a number of up to nine decimal places.
func (d *decimal) UnmarshalText(text []byte) error {
	word := string(text)
	mantissa, exponent, scaled := strings.Cut(strings.ReplaceAll(word, "_", ""), "e")
	_, places, _ := strings.Cut(mantissa, ".")
	rat, ok := new(big.Rat).SetString(mantissa + "e0" + exponent)
	if !ok || scaled && len(exponent) != 1 || strings.ContainsAny(word, "/EpPxX") || rat.Sign() < 0 || len(places) > 9 || rat.Cmp(big.NewRat(1e9, 1)) > 0 {
		return fmt.Errorf("%q is not a time: give a number from 0 to 1000000000 with up to nine decimal places", word)
	}
	d.Rat = rat
	return nil
}

// price returns the costs for a plan: from the cost file, from the plan's file, or from the
// flags.
func (c *costFlags) price(placement schedule.Placement, file *format.File) (*simulate.Costs, error) {
	if c.Costs != "" {
		costs, err := c.fromFile(placement.Depth())
		return costs, cmp.Or(err, c.ofProfile())
	}
	if file != nil && file.Costs != nil && c.ReplicaRate == 0 {
		return c.withLengths(file.Costs)
	}
	if err := c.needFile(); err != nil {
		return nil, err
	}
	return c.uniform(placement)
}

// needFile returns an error if flags that need a file of costs were given without the file.
func (c *costFlags) needFile() error {
	if c.Lengths != "" {
		return usage("--lengths: give --costs whose stages have per_token or per_square")
	}
	if c.ReplicaRate != 0 {
		return usage("--replica-rate counts bytes: give --costs with the bytes of each stage")
	}
	return nil
}

// fromFile returns the costs in the file. If the file is a profile of a model, it computes the costs for
// the given number of stages.
func (c *costFlags) fromFile(stages int) (*simulate.Costs, error) {
	if flag := c.timed(); flag != "" {
		return nil, usage("%s cannot be used with --costs: the file contains all costs", flag)
	}
	file, err := os.Open(c.Costs)
	if err != nil {
		return nil, err
	}
	defer file.Close() // Closing a file after reading cannot fail in a way that matters.
	text, err := io.ReadAll(io.LimitReader(file, maxDescription))
	if err != nil {
		return nil, err
	}
	var costs *simulate.Costs
	if fit.IsPieces(text) {
		costs, err = c.fromProfile(input{bytes.NewReader(text), c.Costs}, stages)
	} else {
		costs, err = simulate.ReadCosts(input{bytes.NewReader(text), c.Costs})
	}
	switch {
	case errors.Is(err, simulate.ErrCosts), errors.Is(err, fit.ErrModel):
		return nil, inFile(c.Costs, err)
	case errors.Is(err, fit.ErrSetup):
		return nil, usage("%s", diagnostic.Text(err, nil))
	}
	if err == nil && c.ReplicaRate != 0 {
		costs.ReplicaPerMiB, err = perMiB(costs, "--replica-rate", float64(c.ReplicaRate))
	}
	if err != nil {
		return nil, err
	}
	return c.withLengths(costs)
}

// timed returns the first flag that gives a time, or "".
func (c *costFlags) timed() string {
	for _, time := range [...]struct {
		flag string
		decimal
	}{{"--f", c.F}, {"--i", c.I}, {"--w", c.W}, {"--fb", c.Fb}, {"--q", c.Q}, {"--latency", c.Latency}, {"--far-time", c.FarTime}} {
		if time.Rat != nil {
			return time.flag
		}
	}
	return ""
}

// ofProfile returns an error if a flag for profiles was given with another file.
func (c *costFlags) ofProfile() error {
	for _, idle := range [...]struct {
		flag  string
		given bool
	}{{"--seq", c.Seq > 0}, {"--sequences", c.Sequences > 1}, {"--layers", c.Layers != nil}, {"--teraflops", c.Teraflops != 400}, {"--link-rate", c.LinkRate != 50e9}} {
		if idle.given && c.profiled == nil {
			return usage("%s is for a profile, and %s has costs of stages: leave it out", idle.flag, c.Costs)
		}
	}
	return nil
}

// withLengths returns the costs with the lengths of --lengths.
func (c *costFlags) withLengths(costs *simulate.Costs) (*simulate.Costs, error) {
	if c.Lengths == "" {
		return costs, nil
	}
	if !costs.HasRates() {
		return nil, usage("--lengths: the costs do not depend on them: give a stage per_token or per_square, or leave out the flag")
	}
	lines, err := lengthsFile(c.Lengths)
	if err != nil {
		return nil, err
	}
	own := *costs
	own.Lengths = nil
	for _, sequences := range lines {
		if c.profiled != nil {
			if err := c.profiled.pieces.Within(sequences...); err != nil {
				return nil, usage("%s", diagnostic.Text(err, nil))
			}
		}
		own.Lengths = append(own.Lengths, lengths.Of(sequences...))
	}
	return &own, nil
}

// countLengths sets the number of microbatches of a schedule given by name to the number of lines of the --lengths
// file, unless --microbatches was given.
func (c *pricedPlan) countLengths() error {
	if c.Lengths == "" || c.Microbatches != nil {
		return nil
	}
	if _, err := schedule.Find(c.Plan); err != nil {
		return nil // a plan file has its own number of microbatches
	}
	lines, err := lengthsFile(c.Lengths)
	if n := len(lines); err == nil {
		c.Microbatches = &n
	}
	return err
}

// fromProfile returns the costs of the stages of a profile.
func (c *costFlags) fromProfile(r io.Reader, stages int) (*simulate.Costs, error) {
	pieces, err := fit.ReadPieces(r)
	if err != nil {
		return nil, err
	}
	vary := c.vary || c.Lengths != ""
	seq := c.Seq
	if seq == 0 && vary {
		seq = pieces.Typical() // at which the layers are balanced
	}
	if seq == 0 {
		return nil, usage("%s is a profile: give --seq, the tokens of a sequence", c.Costs)
	}
	if vary {
		if err = pieces.ByLength(); err != nil {
			return nil, err
		}
	}
	p := &profiled{pieces: pieces}
	if p.setup, err = pieces.Adapt(fit.Setup{Sequence: seq, Microbatch: c.Sequences}); err != nil {
		return nil, err
	}
	if p.cut, err = pieces.Cut(p.setup, c.Layers, stages); err != nil {
		return nil, err
	}
	c.profiled = p
	return pieces.Costs(p.setup, p.cut, 1e12*c.Teraflops, float64(c.LinkRate), vary), nil
}

// pricedPlan holds the flags for a plan and its costs.
type pricedPlan struct {
	source
	costFlags `group:"Costs:"`
}

// orOne returns the number, or 1 if it is nil.
func (d decimal) orOne() decimal {
	if d.Rat == nil {
		d.Rat = big.NewRat(1, 1)
	}
	return d
}

// uniform divides the times of the flags over the stages that a microbatch visits on each
// rank.
func (c *costFlags) uniform(p schedule.Placement) (*simulate.Costs, error) {
	forward, input, weight := c.F.orOne(), c.I.orOne(), c.W.orOne()
	visits := map[[2]int]int64{} // by rank and copy of the model: the number of the copy's stages on the rank
	for stage, rank := range p.Rank {
		visits[[2]int{rank, stage / p.Depth()}]++
	}
	common := int64(1) // a multiple of all visits, unless that is 1e6 or more
	for stage, rank := range p.Rank {
		n := visits[[2]int{rank, stage / p.Depth()}]
		if m := common / gcd(common, n) * n; m < 1e6 {
			common = m
		}
	}
	scale, far := big.NewInt(common), c.FarTime
	if far.Rat != nil { // the time for one byte; below, a microbatch has 2*common bytes
		far.Rat = new(big.Rat).Quo(far.Rat, big.NewRat(2*common, 1))
	}
	for _, d := range []decimal{forward, input, weight, c.Fb, c.Q, c.Latency, far} {
		if d.Rat != nil { // makes the scale a multiple of the denominator
			scale.Mul(scale, new(big.Int).Quo(d.Denom(), new(big.Int).GCD(nil, nil, d.Denom(), scale)))
		}
	}
	if !scale.IsInt64() || scale.Int64() > math.MaxInt32 {
		return nil, usage("the times together have too many decimal places: give fewer")
	}
	costs := &simulate.Costs{Scale: scale.Int64(), Microbatch: 2 * common, Stages: make([]simulate.StageCosts, p.Stages())}
	share := func(d decimal, parts int64) int64 {
		if d.Rat == nil {
			return 0
		}
		r := new(big.Rat).Mul(d.Rat, new(big.Rat).SetFrac(scale, big.NewInt(parts)))
		return new(big.Int).Quo(r.Num(), r.Denom()).Int64()
	}
	costs.Latency, costs.FarPerMiB = share(c.Latency, 1), share(far, 1)<<20
	for stage, rank := range p.Rank {
		n := visits[[2]int{rank, stage / p.Depth()}]
		costs.Stages[stage] = simulate.StageCosts{
			F: share(forward, n), I: share(input, n), W: share(weight, n), Joined: share(c.Fb, n), Quantize: share(c.Q, n), Saved: 2 * common / n,
		}
	}
	return costs, nil
}

// withStages returns a copy of the costs with change applied to each stage.
func withStages(costs *simulate.Costs, change func(s *simulate.StageCosts)) *simulate.Costs {
	other := *costs
	other.Stages = slices.Clone(costs.Stages)
	for i := range other.Stages {
		change(&other.Stages[i])
	}
	return &other
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
