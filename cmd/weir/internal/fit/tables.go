package fit

import "github.com/weir-ml/weir/memory"

// atI returns a moment of I, and atW the only moment of W.
func atI(step int) Moment { return Moment{I, step} }
func atW() Moment         { return Moment{W, 1} }

// layer returns the layer of a module, with recompute unless it is the embedding or the head.
func (s *Setup) layer(m *Model, p Module, r Recompute) Layer {
	switch p.Kind {
	case Embedding:
		return embedding()
	case Head:
		return head(true)
	}
	l := s.block(m, m.sparse(p.Layer))
	if p.Kind == Further {
		l.Name = "further tokens"
		for _, t := range head(false).Tensors {
			if t.Role == Own {
				l.Tensors = append(l.Tensors, t)
			}
		}
	}
	return l.again(r)
}

// block returns a layer of attention and an MLP or experts.
func (s *Setup) block(m *Model, sparse bool) Layer {
	list := []Tensor{{Name: "input", Role: Input, Freed: atI(12)}, {Name: "gradient of output", Role: Gradient, Freed: atW(), B: 12}}
	list = append(list, norm("norm 1", "p", 1, 12)...)
	list = append(list, gathered("qkv", "p", 2)...)
	if m.Latent != nil {
		list = append(list, latentAttention(m)...)
	} else {
		list = append(list, attention(m)...)
	}
	if s.UnfusedAttention {
		list = append(list,
			kept("softmax of scores", "e*a*b*s*S/t", 3, atI(9), 0).group("core"),
			kept("mask of dropped scores", "D*a*b*s*S/t", 3, atI(9), 0).group("core"),
			kept("dropped scores", "D*e*a*b*s*S/t", 3, atI(9), 0).group("core"),
			scratch("scores", "e*a*b*s*S/t", F, 3, 3), scratch("gradient of scores", "e*a*b*s*S/t", I, 9, 9))
	} else {
		list = append(list, kept("log-sum-exp of scores", "4*a*s*b/t", 3, atI(9), 0))
	}
	attended := atW()
	if s.Precision == FP8 { // The matrix product keeps a copy.
		attended = atI(9)
	}
	list = append(list,
		kept("output of attention", "e*s*b*o/t", 3, attended, 9),
		kept("output of attention in FP8", "P*s*b*o/t", 3, atW(), 9),
		kept("mask 1", "d*s*b*h/q", 4, atI(7), 0),
		kept("middle", "e*s*b*h/q", 4, atI(6), 0),
	)
	list = append(list, norm("norm 2", "p", 5, 6)...)
	list = append(list,
		carried("gradient of middle", "e*s*b*h/q", 6, 12),
		scratch("gradient of output of attention", "e*s*b*o/t", I, 8, 9),
		scratch("gradient of norm 1", "e*s*b*h", I, 10, 12),
	)
	if list = append(list, gathered("fc1", "p", 6)...); sparse {
		list = append(list, experts(m)...)
	} else {
		list = append(list, mlp("", "f", "t")...)
	}
	return Layer{"layer", append(list,
		kept("mask 2", "d*s*b*h/q", 8, atI(1), 0),
		Tensor{Name: "output", Bytes: "e*s*b*h/q", Class: memory.Activation, Role: Output, Born: Moment{F, 8}},
		Tensor{Name: "gradient of input", Bytes: "e*s*b*h/q", Class: memory.ActGrad, Role: Back, Born: atI(12)},
	)}
}

// norm returns the tensors that a norm saves in addition to its input: its statistics, and its output. The
// output is the input of the next matrix product, which keeps each element in the given number of bytes.
func norm(name string, bytes Formula, born, freed int) []Tensor {
	return []Tensor{
		kept("output of "+name, bytes+"*s*b*h/q", born, atW(), freed-1).group("norm"),
		kept("statistics of "+name, "4*l*s*b/q", born, atI(freed), 0),
	}
}

// gathered returns Megatron-LM's buffers of the whole sequence before a product that ranks share.
func gathered(name string, bytes Formula, step int) []Tensor {
	return []Tensor{scratch("gathered input of "+name, "y*s*b*h*"+bytes, F, step, step), scratch("gathered input of "+name+" in W", "y*s*b*h*"+bytes, W, 1, 1)}
}

// attention returns the tensors of queries, keys and values.
func attention(m *Model) []Tensor {
	list := []Tensor{
		kept("queries, keys and values", "e*s*b*n/t + 2*e*s*b*k/t", 2, atI(9), 0),
		carried("gradient of queries, keys and values", "e*s*b*n/t + 2*e*s*b*k/t", 9, 11),
	}
	if m.QKNorm {
		list = append(list, kept("normalised queries and keys", "e*s*b*n/t + e*s*b*k/t", 2, atI(10), 0))
	}
	return list
}

// latentAttention returns the tensors of queries, keys and values in multi-head latent attention.
func latentAttention(m *Model) []Tensor {
	var list []Tensor
	if m.QKNorm {
		list = []Tensor{kept("normalised compressed queries", "p*s*b*c/q", 2, atW(), 11).group("norm"), kept("normalised compressed keys and values", "p*s*b*i/q", 2, atW(), 11).group("norm")}
	}
	return append(list,
		kept("compressed queries", "e*s*b*c/q", 2, atI(11), 0),
		kept("compressed keys and values", "e*s*b*i/q + e*s*b*r/q", 2, atI(11), 0),
		kept("queries", "e*s*b*n/t", 2, atI(9), 0),
		kept("keys", "e*s*b*n/t", 2, atI(9), 0),
		kept("values", "e*s*b*o/t", 2, atI(9), 0),
		scratch("keys and values before positions", "e*a*s*b*j/t + e*s*b*o/t", F, 2, 2),
		carried("gradients of queries, keys and values", "2*e*s*b*n/t + e*s*b*o/t", 9, 11),
	)
}

// mlp returns the tensors of an MLP. width and ranks are letters of a [Formula]: the inner width,
// and the number of ranks that share it.
func mlp(name string, width, ranks Formula) []Tensor {
	return append(inner(name, width, ranks), scratch("gradient of norm 2"+name, "e*s*b*h", I, 4, 6))
}

// inner returns the tensors between the matrices of an MLP.
func inner(name string, width, ranks Formula) []Tensor {
	size := "s*b*" + width + "/" + ranks
	return []Tensor{
		kept("input of the activation"+name, "e*g*"+size, 6, atI(3), 0),
		kept("output of the activation"+name, "p*"+size, 7, atW(), 2).group("activation"),
		scratch("output of the activation before FP8"+name, "P*e*"+size, F, 7, 7),
		scratch("gradient of the activation"+name, "e*"+size, I, 2, 3),
		carried("gradient of the input of the activation"+name, "e*g*"+size, 3, 5),
	}
}

// experts returns the tensors of a router and of experts with an even load, so that each rank has
// as many tokens as without expert parallelism.
func experts(m *Model) []Tensor {
	list := []Tensor{
		kept("probabilities of experts", "4*s*b*E/q", 5, atI(4), 0),
		kept("tokens of experts", "p*x*s*b*h*z/q", 6, atW(), 4),
		scratch("gradient of the output of experts", "e*x*s*b*h*z/q", I, 1, 3),
	}
	list = append(append(list, inner(" of experts", "x*m", "q")...),
		scratch("tokens of experts before FP8", "P*e*x*s*b*h*z/q", F, 6, 7),
		scratch("tokens before they are sent", "e*x*s*b*h/q", F, 6, 6),
		kept("output of experts", "e*x*s*b*h*z/q", 7, atI(1), 0), // weighted by probabilities
		scratch("gradient of tokens of experts", "e*x*s*b*h*z/q", I, 4, 6),
	)
	if m.SharedFFN > 0 {
		list = append(list, mlp(" of the shared expert", "u", "t")...)
	}
	return list
}

// embedding returns the layer that looks up tokens.
func embedding() Layer {
	return Layer{"embedding", []Tensor{
		kept("mask", "d*s*b*h/q", 1, atI(1), 0),
		{Name: "output", Bytes: "e*s*b*h/q", Class: memory.Activation, Role: Output, Born: Moment{F, 1}},
		{Name: "gradient of output", Role: Gradient, Freed: Moment{W, 2}, B: 2},
		{Name: "gradient of the table", Bytes: "e*v*h/t", Class: memory.Workspace, Born: atI(1), Freed: atI(2)},
	}}
}

// head returns the layer of the loss. Logits are converted to float32, and cross-entropy turns
// them into probabilities, in place with Megatron-LM.
func head(last bool) Layer {
	list := append([]Tensor{{Name: "input", Role: Input, Freed: atI(5)}}, norm("final norm", "e", 1, 5)...)
	list = append(list, gathered("the head", "e", 2)...)
	list = append(list,
		scratch("logits", "e*s*b*v/t", F, 2, 3),
		kept("logits, probabilities", "4*s*b*v/t", 3, atI(2), 0),
		carried("logits, gradient", "e*s*b*v/t", 2, 4),
		scratch("gradient of the table", "w*e*v*h/t", I, 3, 4),
		scratch("gradient of the final norm", "e*s*b*h", I, 4, 5))
	if last {
		list = append(list, Tensor{Name: "gradient of input", Bytes: "e*s*b*h/q", Class: memory.ActGrad, Role: Back, Born: atI(5)})
	}
	return Layer{"head", list}
}
