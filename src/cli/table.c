#include "cli/table.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/text.h"

#define GAP 2
#define CARD_NAME 16

/* The member at a dotted path; NULL if there is none. */
static const json_t *member_at(const json_t *object, const char *path)
{
    struct str rest = str_of(path), part;
    while (object && str_split(&rest, '.', &part))
        object = json_object_getn(object, part.p, part.n);
    return object;
}

static struct str text_of(const json_t *value)
{
    return json_is_string(value) ? (struct str){json_string_value(value), json_string_length(value)}
                                 : (struct str){0};
}

static void add_json(struct buf *out, const json_t *value)
{
    AUTO_BUF text = {0};
    json_write(value, &text);
    text_add_safe(out, buf_str(&text));
}

static void add_cell(struct buf *out, const json_t *row, const struct column *column)
{
    const json_t *value = member_at(row, column->path);
    if (value == NULL || json_is_null(value))
        buf_add_c(out, column->kind == COLUMN_USD || column->kind == COLUMN_MS ? "" : "-");
    else if (column->kind == COLUMN_TIME)
        text_add_time(out, text_of(value));
    else if (column->kind == COLUMN_USD)
        text_add_usd(out, json_number_value(value));
    else if (column->kind == COLUMN_MS)
        text_add_ms(out, json_integer_value(value));
    else if (column->kind == COLUMN_MODEL)
        buf_printf(out, "%s/%s", json_get_c(value, "provider"), json_get_c(value, "id"));
    else if (json_is_string(value))
        text_add_line(out, text_of(value), column->columns_max);
    else
        add_json(out, value);
}

/* The last column is not filled up: no blanks at the ends of lines. */
static void print_cell(struct str cell, size_t width, bool last, bool right)
{
    int pad = (int)(width - text_columns(cell));
    printf("%*s%.*s%*s", right ? pad : 0, "", STR_ARG(cell), last ? 0 : (right ? GAP : pad + GAP),
           "");
}

static bool is_number(enum column_kind kind)
{
    return kind == COLUMN_USD || kind == COLUMN_MS || kind == COLUMN_NUMBER;
}

struct grid {
    struct buf *cells; /* row by row, titles first */
    size_t *widths;
    size_t rows, columns;
};

static void fill(struct grid *g, const json_t *rows, const struct column *columns)
{
    for (size_t y = 0; y < g->rows; y++) {
        for (size_t x = 0; x < g->columns; x++) {
            struct buf *cell = &g->cells[y * g->columns + x];
            if (y == 0)
                buf_add_c(cell, columns[x].title);
            else
                add_cell(cell, json_array_get(rows, y - 1), &columns[x]);
            size_t n = text_columns(buf_str(cell));
            g->widths[x] = n > g->widths[x] ? n : g->widths[x];
        }
    }
}

static void print_grid(const struct grid *g, const struct column *columns)
{
    for (size_t y = 0; y < g->rows; y++) {
        for (size_t x = 0; x < g->columns; x++)
            print_cell(buf_str(&g->cells[y * g->columns + x]), g->widths[x], x + 1 == g->columns,
                       is_number(columns[x].kind));
        printf("\n");
    }
}

void table_print(const json_t *rows, const struct column *columns)
{
    struct grid g = {.rows = json_array_size(rows) + 1};
    if (g.rows == 1)
        return;
    while (columns[g.columns].title)
        g.columns++;
    g.cells = mem_alloc(size_mul(size_mul(g.rows, g.columns), sizeof *g.cells));
    g.widths = mem_alloc(size_mul(g.columns, sizeof *g.widths));
    fill(&g, rows, columns);
    print_grid(&g, columns);
    for (size_t i = 0; i < g.rows * g.columns; i++)
        buf_done(&g.cells[i]);
    mem_free(g.cells);
    mem_free(g.widths);
}

static void print_lines(struct str text)
{
    AUTO_BUF safe = {0};
    text_add_safe(&safe, text);
    struct str rest = buf_str(&safe), line;
    while (str_split(&rest, '\n', &line))
        printf("    %.*s\n", STR_ARG(line));
}

static void print_member(const char *name, const json_t *value)
{
    struct str text = text_of(value);
    if (text.n && memchr(text.p, '\n', text.n)) {
        printf("%s\n", name);
        print_lines(text);
        return;
    }
    AUTO_BUF shown = {0};
    if (json_is_null(value))
        buf_add_char(&shown, '-');
    else if (json_is_string(value))
        text_add_line(&shown, text, 0);
    else
        add_json(&shown, value);
    printf("%-*s  %s\n", CARD_NAME, name, shown.n ? shown.p : "");
}

void table_card(const json_t *object)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value) print_member(name, value);
}
