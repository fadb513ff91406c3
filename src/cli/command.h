/* The command line: one row a command, one file a command (or a family of them). A command gets its
   options already parsed and returns the exit status: 0 done, 1 it failed, 2 it was called wrongly
   (125 where the status is that of a command behind --).
 */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

#define OPTIONS_MAX 24
#define ARGUMENTS_MAX 8

/* --name VALUE or --name=VALUE, or the variable PI_MANAGED_<NAME>; a flag has no value name. */
struct option {
    const char *name;
    const char *value;    /* "DIR"; NULL for a flag */
    const char *fallback; /* shown in --help; NULL: none */
    const char *help;
};

struct invocation;
struct resource;

struct command {
    const char *name;      /* "serve", or two words: "key create" */
    const char *arguments; /* "SESSION", "[URL]" where it may be left out, "" for none */
    const char *rest;      /* "CMD": one or more words behind --, taken as they are; NULL: none */
    const char *summary;   /* one line */
    const char *details;   /* more for --help, or NULL */
    const struct option *options; /* ended by .name NULL */
    int (*run)(const struct invocation *call);
    const struct resource *resource; /* of verbs over the API: agent, environment, session */
};

struct invocation {
    const struct command *command;
    const char *values[OPTIONS_MAX]; /* by row of command->options; NULL: not given */
    const char *arguments[ARGUMENTS_MAX];
    size_t argument_count;
    char *const *rest; /* into argv */
    size_t rest_count;
};

/* 0, or an exit status after telling the person what is wrong. argv starts behind the command's
 * name. */
int options_parse(const struct command *command, int argc, char **argv, struct invocation *out);
/* The value given, from the environment, or the fallback; NULL if none. The option must exist. */
const char *option_value(const struct invocation *call, const char *name);
/* On the command line itself. */
bool option_given(const struct invocation *call, const char *name);
bool option_flag(const struct invocation *call, const char *name);
void command_help(const struct command *command);
/* Whichever of the NULL-ended names is nearest to `word`, or NULL if none is near. */
const char *nearest_name(const char *word, const char *const *names);
/* Prints "pi-managed COMMAND: text" of the error slot to standard error; returns 1. */
int command_fail(const struct invocation *call);

/* One a line, in order. */
extern const struct command agent_archive_command;
extern const struct command agent_create_command;
extern const struct command agent_get_command;
extern const struct command agent_list_command;
extern const struct command agent_update_command;
extern const struct command agent_versions_command;
extern const struct command diff_command;
extern const struct command doctor_command;
extern const struct command env_archive_command;
extern const struct command env_create_command;
extern const struct command env_delete_command;
extern const struct command env_get_command;
extern const struct command env_list_command;
extern const struct command env_update_command;
extern const struct command export_command;
extern const struct command file_delete_command;
extern const struct command file_download_command;
extern const struct command file_get_command;
extern const struct command file_list_command;
extern const struct command file_upload_command;
extern const struct command guard_command;
extern const struct command image_build_command;
extern const struct command image_import_command;
extern const struct command image_list_command;
extern const struct command image_prune_command;
extern const struct command image_remove_command;
extern const struct command import_command;
extern const struct command init_command;
extern const struct command key_create_command;
extern const struct command key_list_command;
extern const struct command key_revoke_command;
extern const struct command plan_list_command;
extern const struct command plan_set_command;
extern const struct command pull_command;
extern const struct command run_command;
extern const struct command sandbox_exec_command;
extern const struct command sandbox_fork_command;
extern const struct command sandbox_list_command;
extern const struct command sandbox_remove_command;
extern const struct command sandbox_run_command;
extern const struct command sandbox_shell_command;
extern const struct command sandbox_snapshot_command;
extern const struct command sandbox_tool_command;
extern const struct command serve_command;
extern const struct command session_create_command;
extern const struct command session_delete_command;
extern const struct command session_fork_command;
extern const struct command session_get_command;
extern const struct command session_interrupt_command;
extern const struct command session_list_command;
extern const struct command session_send_command;
extern const struct command session_tail_command;
extern const struct command session_update_command;
extern const struct command session_withdraw_command;
extern const struct command shell_command;
extern const struct command tenant_create_command;
extern const struct command tenant_list_command;
extern const struct command tenant_set_command;
extern const struct command vault_archive_command;
extern const struct command vault_check_command;
extern const struct command vault_create_command;
extern const struct command vault_keys_command;
extern const struct command vault_list_command;
extern const struct command vault_rotate_key_command;
extern const struct command vault_set_command;
extern const struct command vault_unset_command;
extern const struct command volume_get_command;
extern const struct command volume_list_command;
extern const struct command volume_remove_command;
extern const struct command why_command;

/* Options that several commands have. */
#define OPTION_DATA                                                                                \
    {                                                                                              \
        "data", "DIR", "./pi-managed-data", "the data directory"                                   \
    }
#define OPTION_JSON                                                                                \
    {                                                                                              \
        "json", NULL, NULL, "print JSON"                                                           \
    }

#endif
