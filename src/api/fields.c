/* Declarative validation of JSON bodies. */
#include "api/fields.h"

#include <stdio.h>

#include "http/http.h"

/* Drops a character that was cut in the middle at the end. */
static void trim_character(char *text)
{
    size_t n = strlen(text), back = 1;
    while (back <= 3 && back < n && (text[n - back] & 0xc0) == 0x80)
        back++;
    if (back <= n && !str_is_utf8((struct str){text + n - back, back}))
        text[n - back] = 0;
}

/* The path is a JSON pointer that grows and shrinks with the walk; too long a name is cut. */
static size_t path_push(struct fields *f, const char *name)
{
    size_t before = strlen(f->path);
    size_t at = before;
    const size_t end = sizeof f->path - 4;
    if (at < end)
        f->path[at++] = '/';
    for (; *name && at < end; name++) {
        if (*name == '~' || *name == '/') {
            f->path[at++] = '~';
            f->path[at++] = *name == '~' ? '0' : '1';
        } else {
            f->path[at++] = *name;
        }
    }
    f->path[at] = 0;
    trim_character(f->path);
    return before;
}

static size_t path_push_index(struct fields *f, size_t index)
{
    char name[24];
    snprintf(name, sizeof name, "%zu", index);
    return path_push(f, name);
}

static void path_pop(struct fields *f, size_t before)
{
    f->path[before] = 0;
}

static void problem(struct fields *f, const char *code, const char *fmt, va_list ap)
{
    char text[ERR_TEXT_MAX / 2];
    vsnprintf(text, sizeof text, fmt, ap);
    trim_character(text);
    if (f->count == 0) {
        snprintf(f->code, sizeof f->code, "%s", code ? code : "");
        snprintf(f->first, sizeof f->first, "%s%s%s", f->path[0] ? f->path + 1 : "",
                 f->path[0] ? ": " : "", text);
    }
    if (f->count++ < FIELDS_PROBLEMS_MAX && f->report)
        f->report(f->report_arg, f->path, text);
}

void fields_problem(struct fields *f, const char *code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    problem(f, code, fmt, ap);
    va_end(ap);
}

void fields_problem_at(struct fields *f, const char *member, const char *code, const char *fmt, ...)
{
    size_t before = path_push(f, member);
    va_list ap;
    va_start(ap, fmt);
    problem(f, code, fmt, ap);
    va_end(ap);
    path_pop(f, before);
}

/* Kinds */

static unsigned kind_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_STRING:
        return FIELD_STRING;
    case JSON_INTEGER:
        return FIELD_INT | FIELD_NUMBER;
    case JSON_REAL:
        return FIELD_NUMBER;
    case JSON_TRUE:
    case JSON_FALSE:
        return FIELD_BOOL;
    case JSON_OBJECT:
        return FIELD_OBJECT;
    case JSON_ARRAY:
        return FIELD_ARRAY;
    case JSON_NULL:
        break;
    }
    return 0;
}

/* "a string or an object" */
static const char *kinds_text(unsigned kinds, char *out, size_t cap)
{
    static const char *const names[] = {"a string",      "an integer", "a number",
                                        "true or false", "an object",  "an array"};
    if (kinds & FIELD_NUMBER)
        kinds &= ~(unsigned)FIELD_INT;
    out[0] = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (!(kinds & 1u << i))
            continue;
        size_t n = strlen(out);
        snprintf(out + n, cap - n, "%s%s", n ? " or " : "", names[i]);
    }
    return out;
}

static bool is_one_of(struct str s, const char *const *allowed)
{
    for (; *allowed; allowed++)
        if (str_is(s, *allowed))
            return true;
    return false;
}

static void report_one_of(struct fields *f, const char *const *allowed)
{
    AUTO_BUF list = {0};
    for (; *allowed; allowed++)
        buf_printf(&list, "%s\"%s\"", list.n ? ", " : "", *allowed);
    fields_problem(f, NULL, "must be one of %s", list.p);
}

static void check_string(struct fields *f, const struct field *field, struct str s)
{
    size_t n = str_characters(s);
    if (field->one_of) {
        if (!is_one_of(s, field->one_of))
            report_one_of(f, field->one_of);
    } else if ((double)n < field->min) {
        if (n == 0)
            fields_problem(f, NULL, "must not be empty");
        else
            fields_problem(f, NULL, "must have at least %.0f characters", field->min);
    } else if (field->max > 0 && (double)n > field->max) {
        fields_problem(f, NULL, "must have at most %.0f characters; it has %zu", field->max, n);
    } else if (field->bytes_max && s.n > field->bytes_max) {
        fields_problem(f, NULL, "must have at most %zu bytes; it has %zu", field->bytes_max, s.n);
    } else if (field->line && str_has_control(s)) {
        fields_problem(f, NULL, "must not contain control characters");
    } else if (field->no_nul && str_has_nul(s)) {
        fields_problem(f, NULL, "must not contain U+0000");
    }
}

static void check_number(struct fields *f, const struct field *field, double v)
{
    if (v < field->min)
        fields_problem(f, NULL, "must be at least %g", field->min);
    else if (field->max > 0 && v > field->max)
        fields_problem(f, NULL, "must be at most %.15g", field->max);
}

static void check_value(struct fields *f, const struct field *field, const json_t *value);

static void check_array(struct fields *f, const struct field *field, const json_t *array)
{
    size_t n = json_array_size(array);
    if ((double)n < field->min)
        fields_problem(f, NULL, "must have at least %.0f item%s", field->min,
                       field->min > 1 ? "s" : "");
    else if (field->max > 0 && (double)n > field->max)
        fields_problem(f, NULL, "must have at most %.0f items; it has %zu", field->max, n);
    if (field->item == NULL || (field->max > 0 && (double)n > field->max))
        return;
    for (size_t i = 0; i < n; i++) {
        size_t before = path_push_index(f, i);
        check_value(f, field->item, json_array_get(array, i));
        path_pop(f, before);
    }
}

static bool is_empty(const json_t *value)
{
    return (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

static void check_kind(struct fields *f, const struct field *field, const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_STRING:
        check_string(f, field, (struct str){json_string_value(value), json_string_length(value)});
        break;
    case JSON_INTEGER:
    case JSON_REAL:
        check_number(f, field, json_number_value(value));
        break;
    case JSON_ARRAY:
        check_array(f, field, value);
        break;
    case JSON_OBJECT:
        if (field->members)
            fields_object(f, value, field->members);
        break;
    default:
        break;
    }
}

static void check_value(struct fields *f, const struct field *field, const json_t *value)
{
    if (json_is_null(value) && field->nullable)
        return;
    if (field->not_supported) {
        if (!json_is_null(value) && !is_empty(value))
            fields_problem(f, "not_supported", "is not supported by this version; %s",
                           field->not_supported);
        return;
    }
    if (!(kind_of(value) & field->kinds)) {
        char kinds[96];
        fields_problem(f, NULL, "must be %s%s", kinds_text(field->kinds, kinds, sizeof kinds),
                       field->nullable ? " or null" : "");
        return;
    }
    size_t before = f->count;
    check_kind(f, field, value);
    if (field->check && f->count == before)
        field->check(f, value);
}

void fields_member(struct fields *f, const char *member, const struct field *field,
                   const json_t *value)
{
    size_t before = path_push(f, member);
    check_value(f, field, value);
    path_pop(f, before);
}

static const struct field *find_field(const struct field *table, const char *name)
{
    for (; table->name || table->include; table++) {
        const struct field *found = table->include ? find_field(table->include, name) : NULL;
        if (found)
            return found;
        if (table->name && strcmp(table->name, name) == 0)
            return table;
    }
    return NULL;
}

static void check_required(struct fields *f, const json_t *object, const struct field *table)
{
    for (; table->name || table->include; table++) {
        if (table->include)
            check_required(f, object, table->include);
        else if (table->required && json_object_get(object, table->name) == NULL)
            fields_problem_at(f, table->name, NULL, "is required");
    }
}

void fields_object(struct fields *f, const json_t *object, const struct field *table)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value)
    {
        const struct field *field = find_field(table, name);
        if (field)
            fields_member(f, name, field, value);
        else
            fields_problem_at(f, name, NULL, "is not a known field");
    }
    check_required(f, object, table);
}

err fields_result(const struct fields *f)
{
    if (f->count == 0)
        return 0;
    char more[48] = "";
    if (f->count > 1)
        snprintf(more, sizeof more, " (and %zu more problem%s)", f->count - 1,
                 f->count > 2 ? "s" : "");
    return fail_as(E_INVALID, f->code, "%s%s", f->first, more);
}

err fields_check(struct fields *f, const json_t *object, const struct field *table)
{
    if (json_is_object(object))
        fields_object(f, object, table);
    else
        fields_problem(f, NULL, "the body must be a JSON object");
    return fields_result(f);
}

void fields_unique(struct fields *f, const json_t *list, const char *member, const char *what)
{
    size_t i, k;
    json_t *one;
    json_array_foreach(list, i, one)
    {
        const char *name = json_get_c(one, member);
        for (k = 0; name && k < i; k++)
            if (str_is(json_get_str(json_array_get(list, k), member), name)) {
                fields_problem(f, NULL, "%s %.128s twice", what, name);
                return;
            }
    }
}

void fields_apply(json_t *definition, const json_t *changes, const char *const *members, size_t n,
                  json_t *(*default_of)(const char *member))
{
    for (size_t i = 0; i < n; i++) {
        json_t *value = json_object_get(changes, members[i]);
        if (value && !json_is_null(value))
            json_object_set(definition, members[i], value);
        else if (value || json_object_get(definition, members[i]) == NULL)
            json_object_set_new(definition, members[i], default_of(members[i]));
    }
}

void fields_metadata(struct fields *f, const json_t *value)
{
    static const struct field pair = {.kinds = FIELD_STRING, .max = 512, .no_nul = true};
    if (json_object_size(value) > 16)
        fields_problem(f, NULL, "must have at most 16 pairs; it has %zu", json_object_size(value));
    const char *name;
    json_t *text;
    json_object_foreach((json_t *)value, name, text)
    {
        size_t before = path_push(f, name);
        size_t n = str_characters(str_of(name));
        if (n == 0 || n > 64)
            fields_problem(f, NULL, "the key must have 1 to 64 characters; it has %zu", n);
        check_value(f, &pair, text);
        path_pop(f, before);
    }
}

static void report_to_reply(void *arg, const char *path, const char *text)
{
    problem_add(arg, path, "%s", text);
}

err ctx_fields(struct ctx *ctx, const void *context, const struct field *table)
{
    struct fields f = {.report = report_to_reply, .report_arg = ctx, .context = context};
    return fields_check(&f, ctx->json, table);
}
