package testkit

import "reflect"

// Added returns the names of the methods that the interface Wide adds to Base and that return
// an error.
func Added[Wide, Base any]() (names []string) {
	wide, base := reflect.TypeFor[Wide](), reflect.TypeFor[Base]()
	for m := range wide.Methods() {
		if _, has := base.MethodByName(m.Name); !has && m.Type.Out(m.Type.NumOut()-1) == reflect.TypeFor[error]() {
			names = append(names, m.Name)
		}
	}
	return names
}
