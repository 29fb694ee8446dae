package raster

import (
	"encoding/xml"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
)

// ErrTooLarge is returned for a picture of more than MaxPixels.
var ErrTooLarge = errors.New("the picture is too large for PNG: write SVG, or draw fewer ranks or microbatches")

// MaxPixels is the largest number of pixels of a picture.
const MaxPixels = 1 << 27

// scale is the number of pixels per unit of a picture.
const scale = 2

// PNG writes the SVG of package draw as PNG, in light mode.
func PNG(w io.Writer, svg []byte) error {
	var root element
	if err := xml.Unmarshal(svg, &root); err != nil {
		return err
	}
	var left, top, width, height float64
	if _, err := fmt.Sscan(root.attributes()["viewBox"], &left, &top, &width, &height); err != nil {
		return fmt.Errorf("viewBox: %w", err)
	}
	if scale*scale*width*height > MaxPixels {
		return ErrTooLarge
	}
	p := painter{image: image.NewRGBA(image.Rect(0, 0, int(math.Ceil(scale*width)), int(math.Ceil(scale*height)))), top: top, faces: map[string]font.Face{}}
	if err := p.paint(&root, ""); err != nil {
		return err
	}
	return png.Encode(w, p.image)
}

// element is an element of SVG.
type element struct {
	XMLName  xml.Name
	Attrs    []xml.Attr `xml:",any,attr"`
	Text     string     `xml:",chardata"`
	Children []element  `xml:",any"`
}

func (e *element) attributes() map[string]string {
	all := map[string]string{}
	for _, a := range e.Attrs {
		all[a.Name.Local] = a.Value
	}
	return all
}

type painter struct {
	image *image.RGBA
	top   float64
	rules [][]string // selector and properties
	faces map[string]font.Face
}

var (
	darkMode    = regexp.MustCompile(`@media[^{]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}`)
	rule        = regexp.MustCompile(`([^{}]+)\{([^{}]*)\}`)
	pathCommand = regexp.MustCompile(`([MLHhVvz])(-?[\d.]+)?(?: (-?[\d.]+))?`)
)

// style returns the attributes of an element in a group, and the properties of its rules. A later rule wins, as
// in the style sheets of package draw.
func (p *painter) style(e *element, group string) map[string]string {
	style := e.attributes()
	names := append(strings.Fields("."+strings.ReplaceAll(style["class"], " ", " .")), e.XMLName.Local)
	for _, r := range p.rules {
		for selector := range strings.SplitSeq(r[1], ",") {
			words := strings.Fields(selector)
			if slices.Contains(names, words[len(words)-1]) && (len(words) == 1 || words[0] == "."+group) {
				for property := range strings.SplitSeq(r[2], ";") {
					name, value, _ := strings.Cut(property, ":")
					style[name] = value
				}
			}
		}
	}
	return style
}

// number returns the number at the beginning of a value, such as 12px, or 0.
func number(value string) float64 {
	v, _ := strconv.ParseFloat(strings.TrimSuffix(value, "px"), 64)
	return v
}

type point struct{ x, y float64 }

// paint paints an element of a group, and its children.
func (p *painter) paint(e *element, group string) error {
	style := p.style(e, group)
	x, y, w, h := number(style["x"]), number(style["y"]), number(style["width"]), number(style["height"])
	switch e.XMLName.Local {
	case "style":
		p.rules = rule.FindAllStringSubmatch(darkMode.ReplaceAllString(e.Text, ""), -1)
	case "rect":
		p.shape(style, [][]point{{{x, y}, {x + w, y}, {x + w, y + h}, {x, y + h}, {x, y}}})
	case "circle":
		var ring []point
		for degrees := 0; degrees <= 360; degrees += 15 {
			sin, cos := math.Sincos(float64(degrees) * math.Pi / 180)
			ring = append(ring, point{number(style["cx"]) + number(style["r"])*cos, number(style["cy"]) + number(style["r"])*sin})
		}
		p.shape(style, [][]point{ring})
	case "path":
		p.shape(style, lines(style["d"]))
	case "text":
		return p.text(style, x, y, e.Text)
	default:
		for i := range e.Children {
			if err := p.paint(&e.Children[i], style["class"]); err != nil {
				return err
			}
		}
	}
	return nil
}

// lines returns the lines of a path.
func lines(d string) (all [][]point) {
	var at point
	for _, c := range pathCommand.FindAllStringSubmatch(d, -1) {
		first, second := number(c[2]), number(c[3])
		switch c[1] {
		case "M":
			all = append(all, nil)
			at = point{first, second}
		case "L":
			at = point{first, second}
		case "H":
			at.x = first
		case "h":
			at.x += first
		case "V":
			at.y = first
		case "v":
			at.y += first
		case "z":
			at = all[len(all)-1][0]
		}
		all[len(all)-1] = append(all[len(all)-1], at)
	}
	return all
}

// shape fills and strokes lines.
func (p *painter) shape(style map[string]string, lines [][]point) {
	var strokes [][]point // a rectangle for each piece of a line
	for _, line := range lines {
		for i := 1; i < len(line); i++ {
			a, b, half := line[i-1], line[i], number(style["stroke-width"])/2
			if length := math.Hypot(b.x-a.x, b.y-a.y); length > 0 {
				dx, dy := half*(b.x-a.x)/length, half*(b.y-a.y)/length
				strokes = append(strokes, []point{{a.x - dx - dy, a.y - dy + dx}, {b.x + dx - dy, b.y + dy + dx}, {b.x + dx + dy, b.y + dy - dx}, {a.x - dx + dy, a.y - dy - dx}})
			}
		}
	}
	if style["fill"] != "none" {
		p.fill(style["fill"], style["fill-opacity"], lines)
	}
	if style["stroke"] != "" {
		p.fill(style["stroke"], style["stroke-opacity"], strokes)
	}
}

// fill fills polygons with one color. It converts their points to pixels in place.
func (p *painter) fill(paint, opacity string, polygons [][]point) {
	box := image.Rectangle{}
	for _, polygon := range polygons {
		for i := range polygon {
			polygon[i] = point{scale * polygon[i].x, scale * (polygon[i].y - p.top)}
			x, y := int(polygon[i].x), int(polygon[i].y)
			box = box.Union(image.Rect(x-1, y-1, x+2, y+2))
		}
	}
	box = box.Intersect(p.image.Rect)
	r := vector.NewRasterizer(box.Dx(), box.Dy())
	for _, polygon := range polygons {
		for i, q := range polygon {
			add := r.LineTo
			if i == 0 {
				add = r.MoveTo
			}
			add(float32(q.x-float64(box.Min.X)), float32(q.y-float64(box.Min.Y)))
		}
		r.ClosePath()
	}
	r.Draw(p.image, box, image.NewUniform(parseColor(paint, opacity)), image.Point{})
}

func parseColor(paint, opacity string) color.NRGBA {
	c := color.NRGBA{A: 255}
	if opacity != "" {
		c.A = uint8(math.Round(255 * number(opacity)))
	}
	if len(paint) == len("#rgb") {
		paint = string([]byte{'#', paint[1], paint[1], paint[2], paint[2], paint[3], paint[3]})
	}
	_, _ = fmt.Sscanf(paint, "#%02x%02x%02x", &c.R, &c.G, &c.B) // black if the text is not a color
	return c
}

// text draws a text.
func (p *painter) text(style map[string]string, x, y float64, text string) error {
	size := number(strings.Fields(style["font"])[0])
	if own := number(style["font-size"]); own > 0 {
		size = own
	}
	source := goregular.TTF
	if style["font-weight"] != "" {
		source = gobold.TTF
	}
	name := fmt.Sprint(size, style["font-weight"])
	if p.faces[name] == nil {
		parsed, err := opentype.Parse(source)
		if err != nil {
			return err
		}
		if p.faces[name], err = opentype.NewFace(parsed, &opentype.FaceOptions{Size: scale * size, DPI: 72}); err != nil {
			return err
		}
	}
	writer := font.Drawer{Dst: p.image, Src: image.NewUniform(parseColor(style["fill"], "")), Face: p.faces[name]}
	before := map[string]float64{"middle": 0.5, "end": 1}[style["text-anchor"]] * float64(writer.MeasureString(text))
	writer.Dot = fixed.Point26_6{X: fixed.Int26_6(64*scale*x - before), Y: fixed.Int26_6(64 * scale * (y - p.top))}
	writer.DrawString(text)
	return nil
}
