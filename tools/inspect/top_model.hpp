// What `top` shows, and what its keys do. Pure: no terminal, no socket, no clock.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "src/include/kvlease/inspection.hpp"
#include "tools/inspect/screen.hpp"
#include "tools/inspect/table.hpp"

namespace kvlease::inspect {

class top_model {
 public:
  /// False: quit.
  bool press(const key& k);

  void show(nlohmann::json snapshot);
  void show_why(nlohmann::json why);
  /// Why there is nothing new; empty: there is.
  void trouble(std::string text) { trouble_ = std::move(text); }

  bool paused() const noexcept { return paused_; }
  /// What the detail view asks about.
  std::optional<subject> wanted() const;

  /// Lines for a terminal of this size, each narrower than it.
  std::vector<std::string> draw(screen_size size, bool colour) const;

 private:
  struct sort_key {
    const char* name;
    const char* member;
    bool descending;
  };
  static const std::vector<sort_key>& sort_keys();
  std::string what() const { return leases_ ? "leases" : "operations"; }
  /// Filtered and sorted.
  std::vector<const nlohmann::json*> rows() const;
  void keep_selection();
  void move(long by);
  bool press_filter(const key& k);
  bool scroll(const key& k);
  bool press_command(char c);
  std::vector<std::string> body(std::size_t width, std::size_t height, const paper& on) const;

  nlohmann::json snapshot_, why_;
  std::string trouble_, filter_, selected_id_;
  std::size_t selected_ = 0;
  std::size_t scrolled_ = 0;  ///< lines of the detail view that have gone up
  std::size_t sort_ = 0;
  bool reverse_ = false, editing_ = false, paused_ = false, help_ = false, detail_ = false, leases_ = false;
};

}  // namespace kvlease::inspect
