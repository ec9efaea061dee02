#include "tools/inspect/top_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "tools/inspect/format.hpp"
#include "tools/inspect/text_width.hpp"
#include "tools/inspect/views.hpp"

namespace kvlease::inspect {

namespace {

using nlohmann::json;

constexpr std::size_t head_lines = 4, foot_lines = 1;
/// Fits 40 columns.
const std::vector<std::string> help_lines{
    "  up, k      the row above",
    "  down, j    the row below",
    "  page up and down, home, end",
    "  enter      why is it held",
    "  escape     back",
    "  s          sort by the next column",
    "  r          reverse the order",
    "  /          filter: type, enter keeps",
    "             it, escape drops it",
    "  tab        operations or leases",
    "  space      pause",
    "  ?          this help",
    "  q          quit",
    "",
    "  ACCESS: can the backend still touch",
    "  the memory? COPIES: can our copies?",
    "  FATAL IN: then nothing is released",
    "  any more, unless the evidence comes.",
};

bool holds(const json& row, const std::string& filter) {
  if (filter.empty()) return true;
  for (const auto& [name, value] : row.items()) {
    static_cast<void>(name);
    const auto text = value.is_string() ? value.get<std::string>() : value.dump();
    if (text.find(filter) != std::string::npos) return true;
  }
  return false;
}

/// Ids sort by their numbers, texts as they are.
std::pair<double, std::string> rank(const json& row, const char* member) {
  const auto it = row.find(member);
  if (it == row.end() || it->is_null()) return {std::numeric_limits<double>::infinity(), ""};
  if (it->is_number()) return {it->get<double>(), ""};
  const auto text = it->is_string() ? it->get<std::string>() : it->dump();
  if (const auto dot = text.find('.');
      dot != std::string::npos && text.find_first_not_of("0123456789.") == std::string::npos)
    return {std::strtod(text.c_str() + dot + 1, nullptr), text};
  return {0, text};
}

/// One bar over all pools: '.' free, 'L' lent, 'A' awaiting proof, 'Q' quarantined.
std::string pool_bar(const json& snapshot, std::size_t width, const paper& on) {
  double total = 0, parts[4] = {};
  for (const auto& p : list_of(snapshot, "pools")) {
    total += number_of(p, "total");
    constexpr const char* members[] = {"quarantined", "awaiting_proof", "lent", "free"};
    for (std::size_t i = 0; i < 4; ++i) parts[i] += number_of(p, members[i]);
  }
  constexpr const char* marks[] = {"Q", "A", "L", "."};
  constexpr tone tones[] = {tone::bad, tone::warn, tone::good, tone::soft};
  std::string out;
  std::size_t used = 0;
  for (std::size_t i = 0; i < 4 && total > 0; ++i) {
    auto n = static_cast<std::size_t>(parts[i] / total * static_cast<double>(width));
    if (i == 3) n = width - std::min(width, used);
    if (n == 0 && parts[i] > 0 && used < width) n = 1;  // one slot is seen, too
    n = std::min(n, width - used);
    std::string run;
    for (std::size_t k = 0; k < n; ++k) run += marks[i];
    out += toned(run, tones[i], on);
    used += n;
  }
  return out;
}

}  // namespace

const std::vector<top_model::sort_key>& top_model::sort_keys() {
  static const std::vector<sort_key> keys{{"age", "age_seconds", true},
                                          {"fatal in", "fatal_in_seconds", false},
                                          {"deadline", "deadline_in_seconds", false},
                                          {"id", "id", false},
                                          {"request", "request", false},
                                          {"outcome", "outcome", false}};
  return keys;
}

std::vector<const json*> top_model::rows() const {
  std::vector<const json*> out;
  for (const auto& row : list_of(snapshot_, what().c_str()))
    if (row.is_object() && holds(row, filter_)) out.push_back(&row);
  const auto& by = sort_keys()[sort_];
  const bool down = by.descending != reverse_;
  std::ranges::stable_sort(out, [&](const json* a, const json* b) {
    const auto x = rank(*a, by.member), y = rank(*b, by.member);
    return down ? y < x : x < y;
  });
  return out;
}

void top_model::show(json snapshot) {
  snapshot_ = std::move(snapshot);
  trouble_.clear();
  keep_selection();
}

void top_model::show_why(json why) { why_ = std::move(why); }

/// The same row stays selected, wherever it has moved.
void top_model::keep_selection() {
  const auto all = rows();
  for (std::size_t i = 0; i < all.size(); ++i)
    if (!selected_id_.empty() && text_of(*all[i], "id") == selected_id_) {
      selected_ = i;
      return;
    }
  selected_ = all.empty() ? 0 : std::min(selected_, all.size() - 1);
  selected_id_ = all.empty() ? "" : text_of(*all[selected_], "id");
}

void top_model::move(long by) {
  const auto all = rows();
  if (all.empty()) return;
  const auto last = static_cast<long>(all.size()) - 1;
  selected_ = static_cast<std::size_t>(std::clamp(static_cast<long>(selected_) + by, 0L, last));
  selected_id_ = text_of(*all[selected_], "id");
}

std::optional<subject> top_model::wanted() const {
  if (!detail_ || selected_id_.empty()) return std::nullopt;
  return subject{leases_ ? subject_kind::lease : subject_kind::operation, selected_id_};
}

bool top_model::press_filter(const key& k) {
  if (k.kind == key_kind::enter) {
    editing_ = false;
  } else if (k.kind == key_kind::escape) {
    editing_ = false;
    filter_.clear();
  } else if (k.kind == key_kind::backspace) {
    if (!filter_.empty()) filter_.pop_back();
  } else if (k.kind == key_kind::character && static_cast<unsigned char>(k.character) >= 0x20) {
    filter_ += k.character;
  } else if (k.kind == key_kind::interrupt) {
    return false;
  }
  keep_selection();
  return true;
}

bool top_model::press_command(char c) {
  switch (c) {
    case 'q':
      return false;
    case 'j':
      move(1);
      break;
    case 'k':
      move(-1);
      break;
    case 's':
      sort_ = (sort_ + 1) % sort_keys().size();
      keep_selection();
      break;
    case 'r':
      reverse_ = !reverse_;
      keep_selection();
      break;
    case '/':
      editing_ = true;
      help_ = detail_ = false;
      break;
    case ' ':
      paused_ = !paused_;
      break;
    case '?':
      help_ = !help_;
      break;
    default:
      break;
  }
  return true;
}

/// In the detail view: pages of a long answer. False for another key.
bool top_model::scroll(const key& k) {
  constexpr std::size_t page = 10;
  if (k.kind == key_kind::page_down)
    scrolled_ += page;
  else if (k.kind == key_kind::page_up)
    scrolled_ -= std::min(scrolled_, page);
  else
    return false;
  if (why_.is_object()) scrolled_ = std::min(scrolled_, why_lines(why_, {40, false}).size());
  return true;
}

bool top_model::press(const key& k) {
  if (editing_) return press_filter(k);
  constexpr long page_rows = 10, far = std::numeric_limits<int>::max();
  if (detail_ && !help_ && scroll(k)) return true;
  switch (k.kind) {
    case key_kind::interrupt:
      return false;
    case key_kind::character:
      return press_command(k.character);
    case key_kind::up:
      move(-1);
      break;
    case key_kind::down:
      move(1);
      break;
    case key_kind::page_up:
      move(-page_rows);
      break;
    case key_kind::page_down:
      move(page_rows);
      break;
    case key_kind::home:
      move(-far);
      break;
    case key_kind::end:
      move(far);
      break;
    case key_kind::enter:
      detail_ = !selected_id_.empty();
      scrolled_ = 0;
      why_ = nullptr;
      break;
    case key_kind::escape:
      if (help_)
        help_ = false;
      else if (detail_)
        detail_ = false;
      else
        filter_.clear();
      keep_selection();
      break;
    case key_kind::tab:
      leases_ = !leases_;
      detail_ = false;
      selected_ = 0;
      selected_id_.clear();
      keep_selection();
      break;
    case key_kind::backspace:
    case key_kind::resized:
      break;
  }
  return true;
}

std::vector<std::string> top_model::body(std::size_t width, std::size_t height, const paper& on) const {
  if (help_) return help_lines;
  if (detail_) {
    if (const auto about = why_.is_object() ? why_.value("about", json::object()) : json::object();
        text_of(about, "id") == selected_id_) {
      auto lines = why_lines(why_, on);
      const auto hidden = lines.size() > height ? lines.size() - height : 0;
      lines.erase(lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(std::min(scrolled_, hidden)));
      return lines;
    }
    return {"", "  asking ..."};
  }
  const auto all = rows();
  if (all.empty()) return {"", filter_.empty() ? "  nothing" : "  nothing holds '" + filter_ + "'"};
  json shown{{what(), json::array()}};
  const std::size_t space = height > 1 ? height - 1 : 1;
  const auto first = selected_ >= space ? selected_ - space + 1 : 0;
  for (auto i = first; i < all.size() && i < first + space; ++i) shown[what()].push_back(*all[i]);
  auto lines = lay_out(list_table(shown, what()), on);
  if (const auto at = selected_ - first + 1; at < lines.size()) {
    const auto plain = lay_out(list_table(shown, what()), {on.width, false})[at];
    lines[at] = "\x1b[7m" + plain + std::string(width - std::min(width, width_of(plain)), ' ') + "\x1b[0m";
  }
  return lines;
}

std::vector<std::string> top_model::draw(screen_size size, bool colour) const {
  const auto width = std::max<std::size_t>(size.width, 2) - 1;
  const auto height = std::max<std::size_t>(size.height, head_lines + foot_lines + 2);
  const paper on{width, colour};
  std::vector<std::string> out;
  const auto state = text_of(snapshot_, "health");
  const auto facts =
      snapshot_.is_null()
          ? std::string{"no answer yet"}
          : fmt::format("{}up {}  {} operations  {} leases  exposure {} bytes{}{}",
                        number_of(snapshot_, "runtimes") > 1
                            ? fmt::format("runtime {:.0f} of {:.0f}  ", number_of(snapshot_, "runtime_index"),
                                          number_of(snapshot_, "runtimes"))
                            : "",
                        span_text(snapshot_, "uptime_seconds"), text_of(snapshot_, "operations_total"),
                        text_of(snapshot_, "leases_total"), text_of(snapshot_, "exposure_bytes"),
                        flag_of(snapshot_, "draining") ? "  draining" : "",
                        snapshot_.contains("fatal") && snapshot_["fatal"].is_object() ? "  FATAL" : "");
  const auto title = "kvlease  " + state;
  out.push_back("kvlease  " + toned(state, tone_of_health(state), on) + "  " +
                cut(facts, width - std::min(width, width_of(title) + 2)));
  out.push_back(pool_bar(snapshot_, width, on));
  std::string ill;
  for (const auto& a : list_of(snapshot_, "actors"))
    if (text_of(a, "state") != "up")
      ill += (ill.empty() ? "" : ", ") + text_of(a, "kind") + " " + text_of(a, "state");
  const auto note = !trouble_.empty() ? trouble_ : ill.empty() ? "all actors are up" : ill;
  out.push_back(toned(cut(note, width), trouble_.empty() && ill.empty() ? tone::soft : tone::bad, on));
  out.push_back(
      cut(fmt::format("{}, by {}{}{}{}", what(), sort_keys()[sort_].name, reverse_ ? ", reversed" : "",
                      filter_.empty() ? "" : ", with '" + filter_ + "'", paused_ ? "  PAUSED" : ""),
          width));
  const auto room = height - head_lines - foot_lines;
  auto middle = body(width, room, on);
  middle.resize(room);
  for (auto& line : middle) out.push_back(std::move(line));
  out.push_back(
      editing_ ? cut("/" + filter_ + "_", width)
               : toned(cut("enter why  s sort  r reverse  / filter  tab leases  space pause  ? help  q quit",
                           width),
                       tone::soft, on));
  for (auto& line : out) line = clip_line(line, width);
  return out;
}

}  // namespace kvlease::inspect
