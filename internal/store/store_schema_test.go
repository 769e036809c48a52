package store_test

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/database"
	"github.com/modbox/modbox/internal/store/migrations"
	"github.com/modbox/modbox/internal/store/storetest"
)

// Each migration after the first of PostgreSQL exists for both engines, with the same name.
func TestMigrationsAreTwins(t *testing.T) {
	names := func(files fs.FS, err error) (list []string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if list, err = fs.Glob(files, "*.sql"); err != nil {
			t.Fatal(err)
		}
		return list
	}
	lite, post := names(migrations.SQLite()), names(migrations.Postgres())
	baseline, _, _ := strings.Cut(post[0], "_")
	later := slices.DeleteFunc(lite, func(name string) bool { return name[:len(baseline)] <= baseline })
	if d := cmp.Diff(later, post[1:]); d != "" {
		t.Errorf("migrations after %s; write the ones that lack for PostgreSQL (+) or SQLite (-):\n%s", baseline, d)
	}
}

// Both engines have the same tables, columns, indexes, keys, unique columns, foreign keys and triggers.
func TestSchemasAreTheSame(t *testing.T) {
	needPostgres(t)
	lite, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "lite.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer lite.Close()
	post := storetest.Open(t, filepath.Join(t.TempDir(), "post.db"))
	list := func(s *store.Store, query string) []string {
		t.Helper()
		found, err := database.Column[string](t.Context(), s.Reader(), query)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(found)
		return slices.DeleteFunc(found, func(s string) bool {
			return strings.HasPrefix(s, "writers.") || strings.HasPrefix(s, "shard_ranges.") || strings.HasPrefix(s, "create_rates.") || strings.HasPrefix(s, "sequences.") || strings.HasPrefix(s, "spent_tokens.rowid") || strings.HasPrefix(s, "goose_") || strings.HasPrefix(s, "sqlite_") || strings.HasPrefix(s, "audit_search")
		})
	}
	for _, c := range []struct{ what, lite, post string }{
		{"columns",
			`SELECT m.name || '.' || c.name || CASE WHEN c."notnull" = 1 OR c.pk > 0 AND c.type = 'INTEGER' THEN ' not null' ELSE '' END FROM sqlite_master m, pragma_table_xinfo(m.name) c WHERE m.type = 'table'`,
			`SELECT table_name || '.' || column_name || CASE WHEN is_nullable = 'NO' THEN ' not null' ELSE '' END FROM information_schema.columns WHERE table_schema = current_schema()`},
		{"indexes",
			`SELECT m.name || CASE l."unique" WHEN 1 THEN ' unique' ELSE '' END || CASE l.partial WHEN 1 THEN ' partial' ELSE '' END || (SELECT group_concat(' ' || i.name, '') FROM pragma_index_info(m.name) i)
				FROM sqlite_master m, pragma_index_list(m.tbl_name) l WHERE m.type = 'index' AND l.name = m.name AND m.sql IS NOT NULL`,
			`SELECT c.relname || CASE WHEN i.indisunique THEN ' unique' ELSE '' END || CASE WHEN i.indpred IS NOT NULL THEN ' partial' ELSE '' END ||
				(SELECT string_agg(' ' || a.attname, '' ORDER BY a.attnum) FROM pg_attribute a WHERE a.attrelid = c.oid)
				FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_namespace n ON n.oid = c.relnamespace
				WHERE n.nspname = current_schema() AND NOT EXISTS (SELECT 1 FROM pg_constraint k WHERE k.conindid = c.oid)`},
		{"keys and unique columns",
			`SELECT m.name || CASE l.origin WHEN 'pk' THEN '.key' ELSE '.unique' END || (SELECT group_concat(' ' || i.name, '') FROM pragma_index_info(l.name) i)
				FROM sqlite_master m, pragma_index_list(m.name) l WHERE m.type = 'table' AND l.origin IN ('pk', 'u')
				UNION ALL SELECT m.name || '.key ' || c.name FROM sqlite_master m, pragma_table_info(m.name) c
				WHERE m.type = 'table' AND c.pk = 1 AND NOT EXISTS (SELECT 1 FROM pragma_index_list(m.name) WHERE origin = 'pk')`,
			`SELECT k.conrelid::regclass || CASE k.contype WHEN 'p' THEN '.key' ELSE '.unique' END || (SELECT string_agg(' ' || a.attname, '' ORDER BY n)
				FROM unnest(k.conkey) WITH ORDINALITY c(number, n) JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = c.number)
				FROM pg_constraint k WHERE k.connamespace = current_schema()::regnamespace AND k.contype IN ('p', 'u')`},
		{"foreign keys",
			`SELECT name || '.' || group_concat("from", ' ') || ' of ' || "table" || ' on delete ' || lower(on_delete)
				FROM (SELECT m.name, f.* FROM sqlite_master m, pragma_foreign_key_list(m.name) f WHERE m.type = 'table' ORDER BY m.name, f.id, f.seq) GROUP BY name, id`,
			`SELECT k.conrelid::regclass || '.' || (SELECT string_agg(a.attname, ' ' ORDER BY n)
				FROM unnest(k.conkey) WITH ORDINALITY c(number, n) JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = c.number) || ' of ' || k.confrelid::regclass ||
				' on delete ' || CASE k.confdeltype WHEN 'a' THEN 'no action' WHEN 'r' THEN 'restrict' WHEN 'c' THEN 'cascade' WHEN 'n' THEN 'set null' ELSE 'set default' END
				FROM pg_constraint k WHERE k.connamespace = current_schema()::regnamespace AND k.contype = 'f'`},
		{"triggers",
			`SELECT name || ' of ' || tbl_name FROM sqlite_master WHERE type = 'trigger'`,
			`SELECT t.tgname || ' of ' || c.relname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid WHERE NOT t.tgisinternal`},
	} {
		have, want := list(post, c.post), list(lite, c.lite)
		if d := cmp.Diff(want, have); d != "" || len(want) < 10 {
			t.Errorf("%s (-SQLite +PostgreSQL):\n%s", c.what, d)
		}
	}
}
