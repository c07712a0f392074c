package main

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"

	"github.com/parquet-go/parquet-go"
)

// The source of this example: numbered rows of a table with the columns id, origin (its partition) and at.

const firstTime = 1_767_225_600_000_000 // 2026-01-01 in microseconds

// Iceberg has all columns in its files, with their field ids.
type icebergRow struct {
	ID     int64  `parquet:"id,id(1)"`
	Origin string `parquet:"origin,id(2)"`
	At     int64  `parquet:"at,id(3),timestamp(microsecond:local)"`
}

// Delta lacks the partition columns in its files.
type deltaRow struct {
	ID int64 `parquet:"id"`
	At int64 `parquet:"at,timestamp(microsecond)"`
}

const deltaSchema = `["none",["origin"],[["id",null,true,"long"],["origin",null,true,"string"],["at",null,true,"timestamp"]]]`

// deltaSchemaID returns the number of the schema above; Delta itself numbers no schemas.
func deltaSchemaID() int64 {
	sum := sha256.Sum256([]byte(deltaSchema))
	return int64(binary.BigEndian.Uint64(sum[:8]) >> 12)
}

// writeFile writes the rows from `start` to `end` as one durable file, and describes it. No event names it yet.
func writeFile(format, location, name, region string, first, start, end int64) (File, error) {
	folder := "origin=" + region
	if format == "iceberg" {
		folder = "data/" + folder
	}
	relative := path.Join(folder, name)
	place := filepath.Join(location, relative)
	if err := os.MkdirAll(filepath.Dir(place), 0o755); err != nil {
		return File{}, err
	}
	file, err := os.OpenFile(place, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return File{}, err
	}
	defer file.Close()
	if format == "iceberg" {
		err = writeRows(file, start, end, func(n int64) icebergRow { return icebergRow{first + n, region, firstTime + n} })
	} else {
		err = writeRows(file, start, end, func(n int64) deltaRow { return deltaRow{first + n, firstTime + n} })
	}
	if err == nil {
		err = file.Sync()
	}
	if err != nil {
		return File{}, err
	}
	// The names of the file and of each folder that was made for it are in the folders above.
	for above := filepath.Dir(place); ; above = filepath.Dir(above) {
		folder, err := os.Open(above)
		if err == nil {
			err = errors.Join(folder.Sync(), folder.Close())
		}
		if err != nil {
			return File{}, err
		}
		if above == location {
			break
		}
	}
	size, err := file.Seek(0, io.SeekEnd)
	return File{Path: relative, Size: size, Rows: end - start,
		Partition: map[string]*string{"origin": &region}}, err
}

func writeRows[T any](to io.Writer, start, end int64, row func(int64) T) error {
	rows := make([]T, 0, end-start)
	for n := start; n < end; n++ {
		rows = append(rows, row(n))
	}
	return parquet.Write(to, rows, parquet.Compression(&parquet.Snappy))
}
