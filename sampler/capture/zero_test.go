package capture

import (
	"reflect"
	"strings"
)

// zeroFields lists the fields of what r points to, at any depth, that are zero.
func zeroFields(r Record) string {
	var list []string
	var walk func(v reflect.Value, path string)
	walk = func(v reflect.Value, path string) {
		switch {
		case v.IsZero():
			list = append(list, path)
		case v.Kind() == reflect.Struct && v.Type().Name() != "Time":
			for i := range v.NumField() {
				walk(v.Field(i), path+"."+v.Type().Field(i).Name)
			}
		case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
			for i := range v.Len() {
				walk(v.Index(i), path)
			}
		}
	}
	walk(reflect.ValueOf(r).Elem(), "")
	return strings.Join(list, ", ")
}
