/* pi-managed image: the store of root file systems for sandboxes (docs/images.md). Works on the
   data directory, whether the service runs or not. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "cli/command.h"
#include "images/import.h"
#include "images/store.h"
#include "images/wall.h"

#define TELL_EVERY_MS 2000
#define MIB (UINT64_C(1) << 20)

static err images_folder(const struct invocation *call, char out[PATH_MAX])
{
    return snprintf(out, PATH_MAX, "%s/images", option_value(call, "data")) >= PATH_MAX
               ? fail(E_INVALID, "the path of the data directory is too long")
               : 0;
}

static int finish(const struct invocation *call, err e)
{
    return e ? command_fail(call) : 0;
}

static void print_json(json_t *take)
{
    AUTO_BUF text = {0};
    AUTO_JSON j = take;
    json_write(j, &text);
    printf("%s\n", text.p);
}

/* ---- import ---- */

static err read_number(const struct invocation *call, const char *option, uint64_t least,
                       uint64_t most, uint64_t *out)
{
    const char *text = option_value(call, option);
    uint64_t n;
    if (!str_to_u64(str_of(text), &n) || n < least || n > most)
        return fail(E_INVALID, "--%s %s: give a number from %llu to %llu", option, text,
                    (unsigned long long)least, (unsigned long long)most);
    *out = n;
    return 0;
}

static err read_limits(const struct invocation *call, struct image_limits *out)
{
    uint64_t entries, mib, path;
    TRY(read_number(call, "max-entries", 1, UINT32_MAX, &entries));
    TRY(read_number(call, "max-mib", 1, UINT32_MAX, &mib));
    TRY(read_number(call, "max-path", 1, PATH_MAX - 1, &path));
    *out =
        (struct image_limits){.entries = entries, .bytes = mib * MIB, .path_bytes = (uint32_t)path};
    return 0;
}

/* Lines on standard error while it takes long; a short import says nothing. */
static err tell(void *arg, const struct image_progress *p)
{
    int64_t *next_ms = arg, now = clock_monotonic_ms(clock_real());
    if (now < *next_ms)
        return 0;
    *next_ms = now + TELL_EVERY_MS;
    char layer[64] = "";
    if (p->layer)
        snprintf(layer, sizeof layer, "layer %zu of %zu, ", p->layer, p->layer_count);
    fprintf(stderr, "%s%llu entries, %llu MiB …\n", layer, (unsigned long long)p->counts.entries,
            (unsigned long long)(p->counts.bytes / MIB));
    return 0;
}

static void report(const struct invocation *call, const struct image_imported *i)
{
    if (option_flag(call, "json")) {
        char digest[IMAGE_DIGEST_MAX + 8];
        snprintf(digest, sizeof digest, "sha256:%s", i->digest);
        print_json(json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:b}", "name", i->name.name, "tag",
                             i->name.tag, "digest", digest, "entries",
                             (json_int_t)i->counts.entries, "bytes", (json_int_t)i->counts.bytes,
                             "skipped", (json_int_t)i->counts.skipped, "known", i->known));
        return;
    }
    printf("%s:%s  sha256:%s  %llu entries, %llu MiB%s\n", i->name.name, i->name.tag, i->digest,
           (unsigned long long)i->counts.entries, (unsigned long long)(i->counts.bytes / MIB),
           i->known ? " (it was there already)" : "");
    if (i->counts.skipped)
        fprintf(stderr,
                "%llu device nodes or sockets were left out: sandboxes bring their own /dev\n",
                (unsigned long long)i->counts.skipped);
}

/* R32: what a sandbox does otherwise than the image's maker wanted is said, not passed over. */
static void report_wishes(const struct image_imported *i)
{
    if (i->user[0] && strcmp(i->user, "root") != 0 && strcmp(i->user, "0") != 0)
        fprintf(stderr, "The image names the user %s: in a sandbox everything runs as its root.\n",
                i->user);
    if (i->working_dir[0] && strcmp(i->working_dir, "/") != 0)
        fprintf(stderr, "The image names the folder %s: tools work in /workspace.\n",
                i->working_dir);
}

static err import_source(const struct invocation *call, const char *ref, const char *source,
                         const char *origin)
{
    char images[PATH_MAX];
    int64_t next_ms = clock_monotonic_ms(clock_real()) + TELL_EVERY_MS;
    struct image_imported done;
    struct image_import r = {.images = images,
                             .ref = ref,
                             .source = source,
                             .origin = origin,
                             .progress = tell,
                             .arg = &next_ms};
    TRY(images_folder(call, images));
    TRY(read_limits(call, &r.limits));
    TRY(image_import(&r, &done));
    report(call, &done);
    report_wishes(&done);
    return 0;
}

/* Behind a wall: it reads what others made, and this process does nothing else. */
static err import_argument(const struct invocation *call)
{
    char images[PATH_MAX];
    TRY(images_folder(call, images));
    TRY(image_wall_enter(images, call->arguments[1]));
    return import_source(call, call->arguments[0], call->arguments[1], NULL);
}

static int run_import(const struct invocation *call)
{
    return finish(call, import_argument(call));
}

/* ---- build ---- */

static const char packages[] = "ca-certificates,curl,git,less,nodejs,procps,python3,ripgrep";

/* Its own messages go to standard error; the tar to `out`. */
static err run_mmdebstrap(const char *suite, int out)
{
    char include[sizeof packages + 16];
    snprintf(include, sizeof include, "--include=%s", packages);
    pid_t pid = fork();
    if (pid < 0)
        return fail_errno("start mmdebstrap");
    if (pid == 0) {
        if (dup2(out, STDOUT_FILENO) >= 0)
            execlp("mmdebstrap", "mmdebstrap", "--variant=minbase", "--format=tar", include, suite,
                   "-", (char *)NULL);
        _exit(errno == ENOENT ? 127 : 126);
    }
    int status;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return fail_errno("wait for mmdebstrap");
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return fail(E_UNAVAILABLE, "mmdebstrap is not installed. Run: apt-get install mmdebstrap");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return fail(E_UNAVAILABLE, "mmdebstrap failed; what it said stands above");
    return 0;
}

static err build_base(const struct invocation *call)
{
    char images[PATH_MAX], source[64], origin[128];
    const char *kind = call->arguments[0], *ref = call->arguments[1];
    const char *suite = option_value(call, "suite");
    struct image_name name;
    if (strcmp(kind, "base") != 0)
        return fail(E_INVALID, "only \"base\" can be built: pi-managed image build base NAME");
    TRY(image_name_parse(ref, &name)); /* before minutes of work */
    TRY(images_folder(call, images));
    /* Has no name: nothing is left of it whatever happens. */
    AUTO_FD tar = open(option_value(call, "data"), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (tar < 0)
        return fail_errno("make a temporary file in %s", option_value(call, "data"));
    TRY(run_mmdebstrap(suite, tar));
    snprintf(source, sizeof source, "tar:/proc/self/fd/%d", tar);
    snprintf(origin, sizeof origin, "mmdebstrap %.80s", suite);
    return import_source(call, ref, source, origin);
}

static int run_build(const struct invocation *call)
{
    return finish(call, build_base(call));
}

/* ---- list, remove ---- */

struct listing {
    const struct invocation *call;
    size_t count;
};

static err print_image(void *arg, const struct image_listed *i)
{
    struct listing *l = arg;
    const struct invocation *call = l->call;
    l->count++;
    char at[CLOCK_TEXT_MAX], digest[IMAGE_DIGEST_MAX + 8];
    clock_format(i->imported_at_ms, at);
    snprintf(digest, sizeof digest, "sha256:%s", i->image.digest);
    if (option_flag(call, "json"))
        print_json(json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I}", "name",
                             i->image.name.name, "tag", i->image.name.tag, "digest", digest,
                             "importedAt", at, "source", i->source, "architecture", i->architecture,
                             "entries", (json_int_t)i->entries, "bytes", (json_int_t)i->bytes,
                             "sandboxes", (json_int_t)i->holders));
    else
        printf("%s:%s  %.19s  %s  %llu MiB  %llu sandboxes  %s\n", i->image.name.name,
               i->image.name.tag, digest, at, (unsigned long long)(i->bytes / MIB),
               (unsigned long long)i->holders, i->source);
    return 0;
}

static err list_images(const struct invocation *call)
{
    char images[PATH_MAX];
    struct listing l = {.call = call};
    TRY(images_folder(call, images));
    TRY(image_list(images, print_image, &l));
    if (l.count == 0)
        fprintf(stderr, "No images. pi-managed image build base debian makes one; the image host "
                        "(this machine's /usr) needs none.\n");
    return 0;
}

static int run_list(const struct invocation *call)
{
    return finish(call, list_images(call));
}

static err remove_image(const struct invocation *call)
{
    char images[PATH_MAX];
    uint64_t holders = 0;
    TRY(images_folder(call, images));
    TRY(image_remove(images, call->arguments[0], &holders));
    printf("%s removed\n", call->arguments[0]);
    if (holders)
        printf("%llu sandboxes still use its files; they go with the last of them\n",
               (unsigned long long)holders);
    return 0;
}

static int run_remove(const struct invocation *call)
{
    return finish(call, remove_image(call));
}

/* ---- prune ---- */

/* Names of the images to remove: the store is not changed while it is read. */
static err collect_unused(void *arg, const struct image_listed *i)
{
    struct buf *names = arg;
    if (i->holders == 0 && image_is_derived(&i->image.name))
        buf_printf(names, "%s:%s\n", i->image.name.name, i->image.name.tag);
    return 0;
}

static err prune_images(const struct invocation *call)
{
    char images[PATH_MAX];
    AUTO_BUF names = {0};
    TRY(images_folder(call, images));
    TRY(image_list(images, collect_unused, &names));
    size_t removed = 0;
    for (char *rest = names.p, *name; (name = strsep(&rest, "\n")) && *name; removed++) {
        uint64_t holders;
        err e = image_remove(images, name, &holders);
        if (e && e != E_NOT_FOUND)
            return e;
    }
    printf("%zu images removed\n", removed);
    return 0;
}

static int run_prune(const struct invocation *call)
{
    return finish(call, prune_images(call));
}

/* ---- commands ---- */

#define OPTION_LIMITS                                                                              \
    {"max-entries", "N", "2000000", "files, folders and links it may have"},                       \
        {"max-mib", "N", "65536", "MiB of content it may have"},                                   \
    {                                                                                              \
        "max-path", "N", "4095", "bytes a path in it may have"                                     \
    }

static const struct option import_options[] = {OPTION_DATA, OPTION_JSON, OPTION_LIMITS, {0}};
static const struct option build_options[] = {
    OPTION_DATA,   OPTION_JSON, {"suite", "SUITE", "bookworm", "the Debian release"},
    OPTION_LIMITS, {0},
};
static const struct option list_options[] = {OPTION_DATA, OPTION_JSON, {0}};
static const struct option remove_options[] = {OPTION_DATA, {0}};

const struct command image_import_command = {
    .name = "image import",
    .arguments = "NAME[:TAG] SOURCE",
    .summary = "Imports an image: dir:PATH, tar:PATH or oci:PATH[:TAG].",
    .options = import_options,
    .run = run_import,
};
const struct command image_build_command = {
    .name = "image build",
    .arguments = "base NAME[:TAG]",
    .summary = "Makes a Debian image with git, curl, python3, rg and node.",
    .options = build_options,
    .run = run_build,
};
const struct command image_list_command = {
    .name = "image list",
    .arguments = "",
    .summary = "Lists the images that environments can name.",
    .options = list_options,
    .run = run_list,
};
const struct command image_remove_command = {
    .name = "image remove",
    .arguments = "NAME[:TAG]",
    .summary = "Removes an image.",
    .options = remove_options,
    .run = run_remove,
};
const struct command image_prune_command = {
    .name = "image prune",
    .arguments = "",
    .summary = "Removes images made for environments that no sandbox uses.",
    .details = "Made again when one is needed: packages are installed anew, paths imported anew.",
    .options = remove_options,
    .run = run_prune,
};
