/* What agents, environments and sessions have in common on the command line: they are found by id
   or name, listed, shown, archived, deleted. Each is one struct resource; a verb is a struct
   command that names it. */
#ifndef CLI_RESOURCE_H
#define CLI_RESOURCE_H

#include "base/id.h"
#include "cli/remote.h"
#include "cli/table.h"

/* An option of `list` that becomes a query parameter. */
struct resource_filter {
    const char *option, *query;
    const struct resource *resource; /* the value is one of these, by id or name; NULL: as it is */
    bool flag;                       /* has no value: true when given */
};

struct resource {
    const char *noun, *plural;
    const char *path;
    const char *id_prefix;
    const char *label;     /* the member that a person knows it by */
    bool has_unique_label; /* … and the service finds it by: ?name= */
    bool is_never_archived;
    const char *purge; /* option and query parameter of delete, or NULL */
    const struct column *columns;
    const struct resource_filter *filters; /* ended by .option NULL; NULL: none */
    void (*on_page)(const json_t *page);   /* of `list`; remote.h */
};

extern const struct resource agent_resource, environment_resource, file_resource, session_resource,
    vault_resource, volume_resource;

/* An id, an unambiguous beginning of one, a name (for sessions the title, if only one has it), or
   "last" for the newest. E_NOT_FOUND and E_CONFLICT name what is near. */
err resource_find(struct remote *r, const struct resource *resource, const char *word,
                  char out_id[ID_MAX]);
/* resource->path + "/" + id + rest, of the command's first argument. */
err resource_path(struct remote *r, const char *rest, struct buf *out);
/* Appends a file's content; "-" is standard input. At most 1 MiB. */
err resource_read_file(const char *file, struct buf *out);
/* The object of --from (a file, or - for standard input), else an empty one. */
err resource_body(struct remote *r, json_t **out);
/* The number that an option's text is; E_INVALID names the option. */
err resource_number(const char *option, const char *text, json_t **out);
/* "agent_… helper" for what was made or changed, or JSON. */
void resource_say(const struct remote *r, const char *verb, const json_t *object);

/* .run of the verbs that are the same for all; the command names its resource. */
int resource_list(const struct invocation *call);
int resource_get(const struct invocation *call);
int resource_archive(const struct invocation *call);
int resource_delete(const struct invocation *call);

/* Tables for verbs and resources that need no more: --archived with its query, and --json with the
   service's options. */
extern const struct resource_filter resource_archived_filter[];
extern const struct option resource_list_options[], resource_one_options[];

#define OPTION_FROM                                                                                \
    {                                                                                              \
        "from", "FILE", NULL, "fields as a JSON object, as in the API; - reads standard input"     \
    }
#define OPTION_LIMIT                                                                               \
    {                                                                                              \
        "limit", "N", "100", "the newest so many, or all"                                          \
    }
#define OPTION_JSON_LINES                                                                          \
    {                                                                                              \
        "json", NULL, NULL, "print JSON, one a line"                                               \
    }

#endif
