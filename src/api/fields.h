/* Declarative validation of JSON bodies (R13): a table says which members an object may have and
   what they must be. Every problem is found, not just the first; each has a path ("/model/id") and
   a text. Unknown members are problems, too. A struct fields is one check on one thread. */
#ifndef API_FIELDS_H
#define API_FIELDS_H

#include "base/err.h"
#include "base/json.h"

#include <stdarg.h>

struct ctx;

enum field_kind { /* a set: a field may be of several kinds */
    FIELD_STRING = 1,
    FIELD_INT = 2,
    FIELD_NUMBER = 4, /* integers, too */
    FIELD_BOOL = 8,
    FIELD_OBJECT = 16,
    FIELD_ARRAY = 32
};

struct fields;

struct field {
    const char *name;
    const struct field *include; /* instead of a name: all rows of another table */
    unsigned kinds;
    bool required;
    bool nullable;
    bool line;        /* a string without control characters: names, titles, ids */
    bool no_nul;      /* a string without NUL */
    double min, max;  /* of a number; characters of a string; items of an array; max 0 = no limit */
    size_t bytes_max; /* of a string, UTF-8; 0 = no limit */
    const char *const *one_of;   /* what a string may be; NULL-ended */
    const struct field *members; /* of an object; a table ends with {0}; NULL = not looked at */
    const struct field *item;    /* what each item of an array must be */
    /* Refused unless null or empty, code not_supported: what to do instead. */
    const char *not_supported;
    /* More than a table can say; called when the value has a right kind. May call fields_*. */
    void (*check)(struct fields *f, const json_t *value);
};

#define FIELDS_PATH_MAX 256
#define FIELDS_PROBLEMS_MAX 20 /* told; more are only counted */

struct fields {
    void (*report)(void *arg, const char *path, const char *text);
    void *report_arg;
    const void *context; /* for checks */
    /* its own from here on: zero */
    size_t count;
    char path[FIELDS_PATH_MAX];
    char code[ERR_CODE_MAX];
    char first[ERR_TEXT_MAX];
};

/* 0, or E_INVALID with a summary in the error slot and the code of the first problem. */
err fields_check(struct fields *f, const json_t *object, const struct field *table);

/* For checks: a problem with the present value, or with a member of it. code NULL: invalid_request.
 */
void fields_problem(struct fields *f, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void fields_problem_at(struct fields *f, const char *member, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Checks one member of the present value against `field`. */
void fields_member(struct fields *f, const char *member, const struct field *field,
                   const json_t *value);
/* Checks the members of `object`, the present value. */
void fields_object(struct fields *f, const json_t *object, const struct field *table);
/* Ends a check that was begun by hand: what fields_check returns. */
err fields_result(const struct fields *f);

/* A problem when two items of a list say the same in `member`; lists are short. */
void fields_unique(struct fields *f, const json_t *list, const char *member, const char *what);

/* Sets the members of a resource that `changes` (may be NULL) has: omitted = kept, null = back to
   the default, a value = replaced whole (§6.3). All `members` are there afterwards. */
void fields_apply(json_t *definition, const json_t *changes, const char *const *members, size_t n,
                  json_t *(*default_of)(const char *member));

/* metadata: at most 16 pairs of strings, key ≤ 64 and value ≤ 512 characters. */
void fields_metadata(struct fields *f, const json_t *value);

/* The request's body, which must be an object; problems go into the reply's errors[]. */
err ctx_fields(struct ctx *ctx, const void *context, const struct field *table);

#endif
