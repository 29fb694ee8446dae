// Package raster turns the SVG that package draw writes into PNG.
package raster
